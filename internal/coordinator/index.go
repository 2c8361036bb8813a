package coordinator

import (
	"reflect"
	"slices"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// index is the view arranged by what the loop asks for: which partitions there are, and what is wished and known for
// their topics.
type index struct {
	version int // rises when partitions come or go
	mirrors map[string]*mirrorEntry
}

type mirrorEntry struct {
	mirror   statestore.Mirror
	resolved *mirror.Resolved // nil: its "auto" decisions are not made yet
	// refused: source and destination are one cluster. That says nothing about any partition, so none has FAILED by it; they
	// stand still until the addresses are corrected.
	refused bool
	topics  map[string]*topicEntry
}

type topicEntry struct {
	topic   statestore.Topic
	finding statestore.Finding
	in      *mirrorEntry
	parts   []mirror.Partition
	shards  []int32 // of parts
}

func newIndex() *index { return &index{mirrors: map[string]*mirrorEntry{}} }

// update takes over what the view holds now.
func (x *index) update(v *statestore.View) {
	shards := v.Shards()
	if shards == 0 {
		return
	}
	before := x.mirrors
	x.mirrors = map[string]*mirrorEntry{}
	for _, m := range v.Mirrors() {
		old := before[m.Name]
		e := &mirrorEntry{mirror: m, resolved: resolve(m, old), refused: m.Finding.Kind == mirror.Loop, topics: map[string]*topicEntry{}}
		x.mirrors[m.Name] = e
		for _, t := range v.Topics(m.Name) {
			x.topic(e, old, t, shards)
		}
		if old == nil || len(old.topics) != len(e.topics) {
			x.version++
		}
	}
	if len(before) != len(x.mirrors) {
		x.version++
	}
	x.contested(v)
}

// topic adds a topic. Where its partitions are the same as before, so are their shards, which cost a hash each.
func (x *index) topic(e, before *mirrorEntry, t statestore.Topic, shards int32) {
	n := &topicEntry{topic: t, finding: t.Finding, in: e}
	if n.finding.Message == "" && !e.refused {
		n.finding = e.mirror.Finding
	}
	e.topics[t.Name] = n
	if before != nil {
		if old := before.topics[t.Name]; old != nil && sameParts(old.topic, t) {
			n.parts, n.shards = old.parts, old.shards
			return
		}
	}
	x.version++
	if t.SourceID.IsZero() {
		return
	}
	for i := range t.Partitions {
		p := mirror.Partition{Mirror: t.Mirror, TopicID: t.SourceID, Index: i}
		n.parts, n.shards = append(n.parts, p), append(n.shards, mirror.ShardOf(p, shards))
	}
}

func sameParts(a, b statestore.Topic) bool {
	return a.SourceID == b.SourceID && a.Partitions == b.Partitions && a.DestinationID.IsZero() == b.DestinationID.IsZero()
}

// contested marks topics that two mirrors want. Commands and discovery refuse that, but two owners may decide at the same
// moment: the mirror that mirrors it already keeps it, or else the one whose name comes first.
func (x *index) contested(v *statestore.View) {
	holders := map[string]*topicEntry{}
	for _, name := range sortedKeys(x.mirrors) {
		for topic, t := range x.mirrors[name].topics {
			if t.topic.Wish == mirror.Stopped {
				continue
			}
			other := holders[topic]
			if other == nil {
				holders[topic] = t
				continue
			}
			keeps, gives := other, t
			if !begun(v, other) && begun(v, t) {
				keeps, gives = t, other
				holders[topic] = t
			}
			gives.finding = statestore.Finding{Kind: mirror.Refused, Message: "topic " + topic + " is mirrored by mirror " + keeps.topic.Mirror}
		}
	}
}

// begun reports whether any partition of a topic was mirrored and is not stopped.
func begun(v *statestore.View, t *topicEntry) bool {
	return slices.ContainsFunc(t.parts, func(p mirror.Partition) bool {
		s, ok := v.Partition(p)
		return ok && s.State != mirror.Stopped && s.State != mirror.Failed && s.State != mirror.LogTruncation
	})
}

// find is the topic that a partition belongs to.
func (x *index) find(mirrorName, topic string) *topicEntry {
	if m := x.mirrors[mirrorName]; m != nil {
		return m.topics[topic]
	}
	return nil
}

// resolve makes what the data path gets of a mirror. The old one is kept while it is the same: it is shared and compared
// by pointer.
func resolve(m statestore.Mirror, old *mirrorEntry) *mirror.Resolved {
	if m.TransactionsMode == "" || m.FillersMode == "" {
		return nil
	}
	r := &mirror.Resolved{
		Definition: m.Definition, ClusterID: m.LearntClusterID, TransactionsMode: m.TransactionsMode,
		FillersMode: m.FillersMode, Version: m.Version,
	}
	if old != nil && old.resolved != nil && reflect.DeepEqual(*old.resolved, *r) {
		return old.resolved
	}
	return r
}
