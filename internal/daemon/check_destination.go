package daemon

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// Broker settings that mirrord depends on.
const (
	keyVerification  = "transaction.partition.verification.enable"
	keyExpiration    = "producer.id.expiration.ms"
	keyMessageMax    = "message.max.bytes"
	keyMinISR        = "min.insync.replicas"
	keyDefaultRF     = "default.replication.factor"
	keySessionMin    = "group.min.session.timeout.ms"
	keySessionMax    = "group.max.session.timeout.ms"
	keySuperUsers    = "super.users"
	keyAuthorizer    = "authorizer.class.name"
	producerIDMemory = 24 * time.Hour
)

// destination checks the destination once for all mirrors.
func (c *checker) destination(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	cluster, m, ok := c.connect(ctx, "destination", c.cfg.Destination)
	if !ok {
		return
	}
	defer cluster.Close()
	c.destinationID, c.brokers = m.ClusterID, len(m.Brokers)
	c.askRights(ctx, cluster)
	c.internalTopics(ctx, cluster, m)
	if _, exists := m.Topics[statestore.StateTopic]; exists {
		c.ownership(ctx, cluster)
	}
	c.askSettings(ctx, cluster)
}

func (c *checker) askRights(ctx context.Context, cluster *kafka.Cluster) {
	var err error
	if c.rights, err = cluster.ClusterOperations(ctx); err != nil {
		c.note("", "rights on the cluster could not be read: %v", err)
	}
	c.acls, err = cluster.DescribeACLs(ctx)
	c.authorizer = !kafka.SecurityDisabled(err)
	if !c.authorizer {
		c.ok("no authorizer: everything is allowed to everybody")
		return
	}
	for _, need := range []struct {
		missing   bool
		name, why string
	}{
		{!c.rights.MayWriteMarkers(), "Alter", "holes are filled by empty transactions, which is much slower, transactions cannot be exact, leader epochs cannot be raised"},
		{!c.rights.Has(kafka.OpCreate), "Create", "topics cannot be created unless CREATE on them is granted by name"},
		{!c.rights.Has(kafka.OpDescribeConfigs), "DescribeConfigs", "limits of the brokers cannot be read"},
		{!c.rights.Has(kafka.OpDescribe), "Describe", "rights and ACLs cannot be read"},
	} {
		if need.missing {
			c.note(grant(c.cfg.Destination, "--operation "+need.name+" --cluster"), "%s on the cluster is not granted: %s", need.name, need.why)
		}
	}
	group := cluster.GroupOperations(ctx, c.cfg.GroupID)[c.cfg.GroupID]
	if group.Err == nil && group.Operations.Known() && !group.Operations.Has(kafka.OpRead) {
		c.bad(grant(c.cfg.Destination, "--operation Read --group "+c.cfg.GroupID), "READ on group %s is missing: this instance cannot join", c.cfg.GroupID)
	}
}

// internalTopics compares the state topic with what the file says.
func (c *checker) internalTopics(ctx context.Context, cluster *kafka.Cluster, m kafka.Metadata) {
	want := c.cfg.StateTopic
	t, exists := m.Topics[statestore.StateTopic]
	switch {
	case !exists && int(want.ReplicationFactor) > c.brokers:
		c.bad(fmt.Sprintf("set state_topic.replication_factor to at most %d", c.brokers),
			"state_topic.replication_factor is %d, the destination has %s", want.ReplicationFactor, mirror.Count(c.brokers, "broker"))
	case !exists:
		c.ok("topic %s will be created: %s, replication factor %d", statestore.StateTopic, mirror.Count(want.NumPartitions, "partition"), want.ReplicationFactor)
	case len(t.Partitions) != int(want.NumPartitions):
		c.note("", "topic %s has %s, state_topic.num_partitions is %d: used as found", statestore.StateTopic, mirror.Count(len(t.Partitions), "partition"), want.NumPartitions)
	default:
		c.ok("topic %s exists", statestore.StateTopic)
	}
	for _, name := range []string{statestore.StateTopic, statestore.CommandsTopic} {
		ops := cluster.TopicOperations(ctx, name)[name]
		if ops.Err != nil || !ops.Operations.Known() {
			continue
		}
		if missing := ops.Operations.Missing(kafka.OpRead, kafka.OpWrite, kafka.OpDescribe); len(missing) > 0 {
			c.bad(grant(c.cfg.Destination, "--operation Read --operation Write --topic "+name), "%s on topic %s is missing", strings.Join(missing, ", "), name)
		}
	}
}

// ownership tells whose destination this is, and what in its state cannot be read.
func (c *checker) ownership(ctx context.Context, cluster *kafka.Cluster) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout/4)
	defer cancel()
	view, err := statestore.Load(ctx, cluster)
	if err != nil {
		c.note("", "topic %s could not be read: %v", statestore.StateTopic, err)
		return
	}
	for shard, bad := range view.BadRecords() {
		c.bad(statestore.BadRecordFix, "shard %d %s", shard, bad)
	}
	own, ok := view.Identity()
	if !ok || own.GroupID == c.cfg.GroupID {
		return
	}
	theirs := cluster.DescribeGroups(ctx, []kafka.Group{{ID: own.GroupID, Type: "classic"}})[own.GroupID]
	if theirs.Err == nil && len(theirs.Members) == 0 {
		c.note("", "the destination belonged to group %q, which has no members left: group_id %q will take it over with its mirrors", own.GroupID, c.cfg.GroupID)
		return
	}
	c.bad(fmt.Sprintf("set group_id: %s to share its work, or stop the instances of that group first", own.GroupID),
		"the destination belongs to group %q, group_id here is %q: this instance would refuse to run", own.GroupID, c.cfg.GroupID)
}

// askSettings reads the brokers' settings and tells what is in the way.
func (c *checker) askSettings(ctx context.Context, cluster *kafka.Cluster) {
	var err error
	c.settings, err = cluster.BrokerConfigs(ctx, keyVerification, keyExpiration, keyMessageMax, keyMinISR, keyDefaultRF, keySessionMin,
		keySessionMax, keySuperUsers, keyAuthorizer)
	if err != nil {
		c.note(grant(c.cfg.Destination, "--operation DescribeConfigs --cluster"), "settings of the brokers could not be read: %v", err)
		return
	}
	if least, ok := c.least(keyExpiration); ok && time.Duration(least)*time.Millisecond < producerIDMemory {
		c.note("", "%s is %v: a partition that is written less often, or whose records are older, is written one batch at a time",
			keyExpiration, time.Duration(least)*time.Millisecond)
	}
	c.session()
	c.durability()
	if least, ok := c.least(keyMessageMax); ok {
		c.ok("%s is %d; topics get the source's max.message.bytes where that is larger", keyMessageMax, least)
	}
}

func (c *checker) session() {
	timeout := c.cfg.SessionTimeout.Milliseconds()
	if least, ok := c.most(keySessionMin); ok && timeout < least {
		c.bad(fmt.Sprintf("set session_timeout to at least %dms", least), "session_timeout %v is below the brokers' %s", c.cfg.SessionTimeout, keySessionMin)
	}
	if most, ok := c.least(keySessionMax); ok && timeout > most {
		c.bad(fmt.Sprintf("set session_timeout to at most %dms", most), "session_timeout %v is above the brokers' %s", c.cfg.SessionTimeout, keySessionMax)
	}
}

func (c *checker) durability() {
	factor, ok := c.least(keyDefaultRF)
	if minISR, known := c.most(keyMinISR); ok && known && minISR > factor {
		c.bad(fmt.Sprintf("lower %s or set replication_factor of the mirrors to at least %d", keyMinISR, minISR),
			"%s is %d, but topics are created with %d replicas: they could not be written", keyMinISR, minISR, factor)
	}
	if ok && factor == 1 && c.brokers > 1 {
		c.note("set replication_factor of the mirrors to 3", "%s is 1: created topics are lost with one broker", keyDefaultRF)
	}
}

// takesForeignTransactions reports whether all brokers take transactional batches that they did not begin.
func (c *checker) takesForeignTransactions() bool {
	for _, broker := range c.settings {
		if e, ok := broker.Entries[keyVerification]; broker.Err != nil || ok && e.Value != "false" {
			return false
		}
	}
	return len(c.settings) > 0
}

// superUser reports whether DENY does not bind the daemon, as far as that can be told: by the brokers' super.users if
// they tell them, else by holding every right on the cluster though no rule grants any. Who holds them by rules may be
// a super user or not: then neither is known.
func (c *checker) superUser() (super, known bool) {
	for _, broker := range c.settings {
		list, ok := broker.Entries[keySuperUsers]
		if !ok || list.Value == "" {
			continue
		}
		known = true
		for user := range strings.SplitSeq(list.Value, ";") {
			super = super || strings.TrimSpace(user) == principal(c.cfg.Destination)
		}
	}
	if !known || principalUnknown(c.cfg.Destination) {
		all := len(c.rights.Missing(kafka.OpClusterAction, kafka.OpAlter, kafka.OpAlterConfigs)) == 0
		return all && !c.granted(), !all && c.rights.Known()
	}
	return super, true
}

// granted reports whether some rule grants the daemon a right on the cluster.
func (c *checker) granted() bool {
	for _, a := range c.acls {
		of := a.Principal == principal(c.cfg.Destination) || a.Principal == "User:*" || principalUnknown(c.cfg.Destination)
		if a.ResourceType == "CLUSTER" && a.Permission == "ALLOW" && of {
			return true
		}
	}
	return false
}

func principalUnknown(c mirror.Connection) bool {
	return c.Security.SASL.Mechanism == "" && c.Security.TLS.CertFile != ""
}

// least and most give a numeric setting over all brokers.
func (c *checker) least(key string) (int64, bool) {
	return c.number(key, func(a, b int64) bool { return a < b })
}

func (c *checker) most(key string) (int64, bool) {
	return c.number(key, func(a, b int64) bool { return a > b })
}

func (c *checker) number(key string, better func(a, b int64) bool) (best int64, ok bool) {
	for _, broker := range c.settings {
		n, err := strconv.ParseInt(cmp.Or(broker.Entries[key].Value, "?"), 10, 64)
		if err == nil && (!ok || better(n, best)) {
			best, ok = n, true
		}
	}
	return best, ok
}
