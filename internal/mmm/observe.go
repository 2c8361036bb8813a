package mmm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// observation is what one look at the source of a mirror saw. It is immutable once handed over.
type observation struct {
	at   time.Time
	full bool // topics, settings and ACLs too, not only groups
	err  error
	// destination tells that err is about the destination, which was asked for its id.
	destination              bool
	clusterID, destinationID string

	topics      catalog
	settings    map[string]topicSettings
	settingsErr map[string]error
	starts      map[string]map[kafka.TP]kafka.RangeResult // of the topics that may be being seeded
	acls        []kafka.ACL
	aclsErr     error
	groups      groupsSeen
}

// observer reads a mirror's clusters. It changes nothing.
type observer struct {
	view    View
	name    string
	timeout time.Duration // of each look
	fresh   bool          // the state topic held nothing when this instance first read it
	// commanded: commands had been given before that, which nobody knows any more.
	commanded bool
	seeding   []string // topics that may be being seeded
}

// expected reports whether a cluster id is the one that a mirror's source should have.
func expected(m statestore.Mirror, id, destinationID string) bool {
	return judgeCluster(m, id, destinationID).Finding.Message == ""
}

// source looks at the source. If another cluster answers than the mirror's, nothing but its id is looked at.
func (o observer) source(ctx context.Context, src *kafka.Cluster, destinationID string, full bool) (seen observation) {
	seen = observation{at: time.Now(), full: full}
	m, ok := o.view.Mirror(o.name)
	if !ok {
		seen.err = mirror.Errorf(mirror.Retriable, "mirror %s is not defined", o.name)
		return seen
	}
	if !full {
		seen.clusterID, seen.err = within(ctx, o.timeout, src.ID)
	} else if seen.topics, seen.clusterID, seen.err = o.topics(ctx, src, m); seen.err == nil {
		seen.topics, seen.err = o.confirm(ctx, src, seen.topics, func(t statestore.Topic) mirror.TopicID { return t.SourceID })
	}
	if seen.err != nil || !expected(m, seen.clusterID, destinationID) {
		return seen
	}
	if full {
		nameless(seen.topics, seen.clusterID)
		seen.settings, seen.settingsErr = o.settings(ctx, src, o.concerned(m, seen.topics))
		seen.starts = o.starts(ctx, src, o.seeding)
		seen.acls, seen.aclsErr = within(ctx, o.timeout, src.DescribeACLs)
	}
	seen.groups = o.groups(ctx, src, m)
	return seen
}

// within bounds one call.
func within[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return call(ctx)
}

// topics lists the source's topics: all of them if there is a pattern to match, else those that the mirror is about.
func (o observer) topics(ctx context.Context, src *kafka.Cluster, m statestore.Mirror) (catalog, string, error) {
	const few = 1000
	var ask []string
	sel := selectionOf(m)
	for _, t := range o.view.Topics(o.name) {
		ask = append(ask, t.Name)
	}
	patterns := false
	for _, p := range slices.Concat(sel.include, sel.pendingInclude) {
		patterns = patterns || !p.Literal()
		ask = append(ask, p.String())
	}
	slices.Sort(ask)
	ask = slices.Compact(ask)
	if len(ask) == 0 {
		id, err := within(ctx, o.timeout, src.ID)
		return catalog{}, id, err
	}
	if patterns || len(ask) > few {
		ask = nil
	}
	meta, err := within(ctx, o.timeout, func(ctx context.Context) (kafka.Metadata, error) { return src.Metadata(ctx, ask...) })
	return catalogOf(meta), meta.ClusterID, err
}

func catalogOf(m kafka.Metadata) catalog {
	c := make(catalog, len(m.Topics))
	for name, t := range m.Topics {
		if !kafka.UnknownTopic(t.Err) {
			info := topicInfo{id: t.ID, partitions: int32(len(t.Partitions)), internal: t.Internal, err: t.Err}
			if len(t.Partitions) > 0 {
				info.replicas = len(t.Partitions[0].Replicas)
			}
			c[name] = info
		}
	}
	return c
}

// confirm asks a second time, by name, for the topics that look deleted or recreated: a broker that lags behind, or a
// right that is missing, must not look like a deletion.
func (o observer) confirm(ctx context.Context, c *kafka.Cluster, seen catalog, idOf func(statestore.Topic) mirror.TopicID) (catalog, error) {
	ask := suspects(o.view.Topics(o.name), seen, idOf)
	if len(ask) == 0 {
		return seen, nil
	}
	meta, err := within(ctx, o.timeout, func(ctx context.Context) (kafka.Metadata, error) { return c.Metadata(ctx, ask...) })
	if err != nil {
		return nil, fmt.Errorf("confirm what happened to topics %v: %w", names(ask), err)
	}
	again := catalogOf(meta)
	for _, name := range ask {
		delete(seen, name)
		if info, ok := again[name]; ok {
			seen[name] = info
		}
	}
	return seen, nil
}

// concerned lists the topics whose settings matter: those being mirrored and those to be discovered.
func (o observer) concerned(m statestore.Mirror, source catalog) (list []string) {
	sel, known := selectionOf(m), map[string]bool{}
	for _, t := range o.view.Topics(o.name) {
		known[t.Name] = true
		if s, ok := source[t.Name]; ok && s.err == nil && t.Wish == mirror.Mirroring {
			list = append(list, t.Name)
		}
	}
	for name, s := range source {
		if !known[name] && s.err == nil && !internalTopic(name, s) && sel.discovers(name) {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// settings reads the settings of topics; those that cannot be read are in errs.
func (o observer) settings(ctx context.Context, c *kafka.Cluster, topics []string) (all map[string]topicSettings, errs map[string]error) {
	all, errs = map[string]topicSettings{}, map[string]error{}
	if len(topics) == 0 {
		return all, errs
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	for name, cs := range c.TopicConfigs(ctx, topics...) {
		if cs.Err != nil {
			errs[name] = cs.Err
			continue
		}
		all[name] = settingsOf(cs)
	}
	return all, errs
}

func settingsOf(cs kafka.Configs) topicSettings {
	largest, err := strconv.ParseInt(cs.Entries[keyMaxMessageBytes].Value, 10, 64)
	if err != nil {
		largest = 0
	}
	s := topicSettings{explicit: cs.Explicit(), held: map[string]string{}, maxMessageBytes: largest}
	for _, key := range held {
		if e, known := cs.Entries[key]; known {
			s.held[key] = e.Value
		}
	}
	return s
}

// destinationSeen is what one look at the destination saw.
type destinationSeen struct {
	clusterID   string
	topics      catalog
	asked       map[string]bool // what topics says something of
	settings    map[string]topicSettings
	settingsErr map[string]error
	known       map[string]bool // keys of topic settings; empty: not told
	acls        []kafka.ACL
	aclsErr     error
}

// destination looks at the destination's side of what was seen at the source.
func (o observer) destination(ctx context.Context, dst *kafka.Cluster, seen observation) (d destinationSeen, err error) {
	m, ok := o.view.Mirror(o.name)
	if !ok {
		return d, mirror.Errorf(mirror.Retriable, "mirror %s is not defined", o.name)
	}
	ask := o.concerned(m, seen.topics)
	for _, t := range o.view.Topics(o.name) {
		if t.Wish == mirror.Mirroring || unsettled(t) {
			ask = append(ask, t.Name)
		}
	}
	slices.Sort(ask)
	ask = slices.Compact(ask)
	meta, err := within(ctx, o.timeout, func(ctx context.Context) (kafka.Metadata, error) {
		return dst.Metadata(ctx, append(slices.Clip(ask), statestore.StateTopic, statestore.CommandsTopic)...)
	})
	if err != nil {
		return d, fmt.Errorf("look at the destination: %w", err)
	}
	d.clusterID, d.topics, d.asked = meta.ClusterID, catalogOf(meta), map[string]bool{}
	for _, topic := range ask {
		d.asked[topic] = true
	}
	d.topics, err = o.confirm(ctx, dst, d.topics, func(t statestore.Topic) mirror.TopicID { return t.DestinationID })
	if err != nil {
		return d, err
	}
	o.data(ctx, dst, seen.topics, d.topics)
	o.remains(ctx, dst, ask, d.topics)
	o.slots(ctx, dst, d.topics)
	there := slices.DeleteFunc(ask, func(t string) bool { _, ok := d.topics[t]; return !ok })
	d.settings, d.settingsErr = o.settings(ctx, dst, there)
	d.known, _ = within(ctx, o.timeout, func(ctx context.Context) (map[string]bool, error) {
		return dst.KnownTopicConfigs(ctx, statestore.StateTopic)
	})
	d.acls, d.aclsErr = within(ctx, o.timeout, dst.DescribeACLs)
	return d, nil
}

// data finds out whether destination topics that have fewer partitions than the source's hold anything. One that cannot
// be asked counts as holding data: it is not grown.
func (o observer) data(ctx context.Context, dst *kafka.Cluster, source, destination catalog) {
	var tps []kafka.TP
	for _, t := range o.view.Topics(o.name) {
		d, ok := destination[t.Name]
		if !ok || !t.DestinationID.IsZero() || t.Wish != mirror.Mirroring || d.partitions >= source[t.Name].partitions {
			continue
		}
		for p := range d.partitions {
			tps = append(tps, kafka.TP{Topic: t.Name, Partition: p, LeaderEpoch: -1})
		}
	}
	if len(tps) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	for tp, end := range dst.LogEnds(ctx, tps) {
		if end.Err != nil || end.Offset > 0 {
			d := destination[tp.Topic]
			d.holdsData = true
			destination[tp.Topic] = d
		}
	}
}
