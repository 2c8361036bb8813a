package daemon

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"mirrord/internal/config"
	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/mmm"
	"mirrord/internal/statestore"
)

// checkTimeout bounds all questions to one cluster.
const checkTimeout = 20 * time.Second

// Check is `mirrord check`: it validates the file and, unless offline, connects and reports rights, settings and limits
// of all clusters, each with the fix. It changes nothing. The error is *config.Mistakes for a bad file and *CheckError if
// something else is wrong.
func Check(ctx context.Context, configFile string, offline bool, out io.Writer) error {
	cfg, err := config.Load(configFile)
	if err != nil {
		return err
	}
	r := &report{out: out}
	fmt.Fprintf(out, "%s\n", cfg.File)
	r.ok("the file is valid: %s", mirror.Count(len(cfg.Mirrors), "mirror"))
	checkDataDir(r, cfg.DataDir)
	told := checkOverlaps(r, cfg.Mirrors)
	if offline {
		return r.result()
	}
	c := checker{report: r, cfg: cfg, mirrorOf: map[string]string{}, told: told}
	c.destination(ctx)
	for _, d := range cfg.Mirrors {
		c.source(ctx, d)
	}
	return r.result()
}

// checker carries what was learnt about the destination to the checks of the sources.
type checker struct {
	*report
	cfg *config.Config

	destinationID string
	brokers       int
	rights        kafka.Operations
	authorizer    bool
	acls          []kafka.ACL
	settings      map[int32]kafka.Configs

	mirrorOf map[string]string // of the topics that were selected so far
	told     map[string]bool   // topics of several mirrors that were told already
}

// connect opens a cluster and asks for its id and brokers.
func (c *checker) connect(ctx context.Context, what string, connection mirror.Connection) (*kafka.Cluster, kafka.Metadata, bool) {
	c.section("%s: %s", what, strings.Join(connection.BootstrapServers, ","))
	cluster, err := kafka.Open(kafka.Config{Connection: connection, ClientID: "mirrord-check"})
	if err != nil {
		c.bad("", "%v", err)
		return nil, kafka.Metadata{}, false
	}
	id, err := cluster.ID(ctx)
	if err == nil {
		var m kafka.Metadata
		if m, err = cluster.Metadata(ctx); err == nil {
			c.ok("cluster %s, %s%s", id, mirror.Count(len(m.Brokers), "broker"), kafkaVersion(ctx, cluster))
			return cluster, m, true
		}
	}
	cluster.Close()
	if kafka.Classify(err) == mirror.Unreachable {
		c.unreachable++
	}
	c.bad("see that an address above is right, a broker runs there and the security settings are the listener's", "cannot be reached: %v", err)
	return nil, kafka.Metadata{}, false
}

func kafkaVersion(ctx context.Context, cluster *kafka.Cluster) string {
	versions, err := cluster.Admin().ApiVersions(ctx)
	if err != nil {
		return ""
	}
	for _, v := range versions {
		if v.Err == nil {
			return ", Kafka " + v.VersionGuess()
		}
	}
	return ""
}

// source checks one mirror's source.
func (c *checker) source(ctx context.Context, d mirror.Definition) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	cluster, m, ok := c.connect(ctx, "source of "+d.Name, d.Source)
	if !ok {
		return
	}
	defer cluster.Close()
	c.sourceID(d, m.ClusterID)
	c.sourceTopics(ctx, cluster, d, m)
	c.modes(d)
}

func (c *checker) sourceID(d mirror.Definition, id string) {
	switch {
	case id != "" && id == c.destinationID:
		c.bad("name two different clusters", "source and destination are one and the same cluster %s: mirror %s will be refused", id, d.Name)
	case d.SourceClusterID != "" && d.SourceClusterID != id:
		c.bad("correct source.bootstrap_servers, or source.cluster_id if that cluster is meant",
			"cluster %s answers, but source.cluster_id is %s", id, d.SourceClusterID)
	}
}

// sourceTopics looks at what the patterns select and whether it may be read.
func (c *checker) sourceTopics(ctx context.Context, cluster *kafka.Cluster, d mirror.Definition, m kafka.Metadata) {
	selected := selectedTopics(d, m)
	switch {
	case len(d.TopicsInclude) == 0:
		c.note("", "topics_include is empty: nothing is mirrored until mirrord start")
		return
	case len(selected) == 0:
		c.note("see that the names are right, and that DESCRIBE on them is granted", "topics_include matches none of %s that can be seen", mirror.Count(len(m.Topics), "topic"))
		return
	}
	c.idleItems(d, selected)
	c.shared(d, selected)
	c.circles(ctx, cluster, selected)
	var unreadable []string
	for name, ops := range cluster.TopicOperations(ctx, selected...) {
		if ops.Err == nil && ops.Operations.Known() && !ops.Operations.Has(kafka.OpRead) {
			unreadable = append(unreadable, name)
		}
	}
	if len(unreadable) > 0 {
		c.bad(grant(d.Source, "--operation Read --operation DescribeConfigs --topic "+firstOf(unreadable)),
			"READ is missing on %d of %d selected topics: %s", len(unreadable), len(selected), shortList(unreadable))
		return
	}
	c.ok("topics_include selects %s, all readable", mirror.Count(len(selected), "topic"))
}

// circles tells which topics a mirror on the source takes from this destination.
func (c *checker) circles(ctx context.Context, cluster *kafka.Cluster, selected []string) {
	view, err := statestore.Load(ctx, cluster)
	if err != nil || c.destinationID == "" {
		return // none, or none that may be read: the daemon does not know of any either
	}
	opposite := mmm.OppositeIn(view, c.destinationID)
	var circular []string
	var first error
	for _, topic := range selected {
		if loop := opposite.Loop(topic); loop != nil {
			circular = append(circular, topic)
			first = cmp.Or(first, loop)
		}
	}
	if first != nil {
		c.note("", "%s will be refused: %s; %v", mirror.Count(len(circular), "topic"), shortList(circular), first)
	}
}

// modes tells what the mirror's automatic choices will be, and which explicit ones cannot work.
func (c *checker) modes(d mirror.Definition) {
	if c.destinationID == "" {
		return
	}
	markers, foreign := c.rights.MayWriteMarkers(), c.takesForeignTransactions()
	if d.Fillers == mirror.Markers && !markers {
		c.bad(grant(c.cfg.Destination, "--operation Alter --cluster"), "fillers: markers needs ALTER on the destination cluster")
	}
	if d.Transactions == mirror.Exact && !markers {
		c.bad(grant(c.cfg.Destination, "--operation Alter --cluster"), "transactions: exact needs ALTER on the destination cluster")
	}
	if d.Transactions == mirror.Exact && !foreign {
		c.bad("set "+keyVerification+"=false on every destination broker (kafka-configs --alter --entity-type brokers --entity-default)",
			"transactions: exact needs brokers that take transactions they did not begin")
	}
	if d.ReplicationFactor > int16(c.brokers) {
		c.bad(fmt.Sprintf("set replication_factor to at most %d", c.brokers), "replication_factor is %d, the destination has %s", d.ReplicationFactor, mirror.Count(c.brokers, "broker"))
	}
	c.guard(d)
	c.ok("modes: fillers %s, transactions %s", fillersMode(d, markers), transactionsMode(d, markers && foreign))
}

func fillersMode(d mirror.Definition, markers bool) string {
	switch {
	case d.Fillers != mirror.Auto:
		return d.Fillers
	case markers:
		return mirror.Markers + " (auto: ALTER on the cluster is granted)"
	}
	return mirror.Transactions + " (auto: ALTER on the cluster is not granted)"
}

func transactionsMode(d mirror.Definition, possible bool) string {
	switch {
	case d.Transactions != mirror.Auto:
		return d.Transactions
	case possible:
		return mirror.Exact + " (auto: all brokers allow it)"
	}
	return mirror.Committed + " (auto: " + keyVerification + " is on, or ALTER is missing)"
}

// guard tells whether mirror topics can be kept from being written to by others.
func (c *checker) guard(d mirror.Definition) {
	super, known := c.superUser()
	const fix = "add the daemon's principal to super.users of every destination broker, or set read_only: off"
	switch {
	case d.ReadOnly == mirror.Off:
	case !c.authorizer && d.ReadOnly == mirror.GuardACL:
		c.bad("configure an authorizer on the destination, or set read_only: auto", "read_only: acl needs an authorizer, the destination has none")
	case !c.authorizer:
		c.note("", "the destination has no authorizer: nothing keeps others from writing to mirror topics; foreign records are detected")
	case !super && known && d.ReadOnly == mirror.GuardACL:
		c.bad(fix, "read_only: acl needs a super user, for DENY binds everybody else")
	case !super && known:
		c.note(fix, "mirror topics are not guarded: the daemon is no super user; foreign records are detected")
	case !super:
		c.note(fix, "mirror topics are guarded only if the daemon is a super user, which is not known; foreign records are detected in any case")
	default:
		c.ok("mirror topics will be guarded by DENY WRITE")
	}
}

func shortList(names []string) string {
	if len(names) > 5 {
		return strings.Join(names[:5], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

func firstOf(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return "NAME (for each)"
}

// grant is the command that grants a right.
func grant(c mirror.Connection, what string) string {
	return fmt.Sprintf("kafka-acls --bootstrap-server %s --add --allow-principal %s %s", c.BootstrapServers[0], principal(c), what)
}

// principal is the name under which brokers know a connection, where that can be told from here.
func principal(c mirror.Connection) string {
	switch {
	case c.Security.SASL.Username != "":
		return "User:" + c.Security.SASL.Username
	case c.Security.SASL.ClientID != "":
		return "User:" + c.Security.SASL.ClientID
	case c.Security.TLS.CertFile != "":
		return "User:CERTIFICATE-SUBJECT"
	}
	return "User:ANONYMOUS"
}
