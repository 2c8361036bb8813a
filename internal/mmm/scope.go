package mmm

import (
	"maps"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// syncMode says whether a partition's committed offsets are mirrored now.
type syncMode uint8

const (
	syncNot   syncMode = iota // not ours, PAUSED, or STOPPED and promoted
	syncOn                    // being mirrored
	syncNote                  // on its way to STOPPED: what the source says is recorded, for the last commit
	syncFinal                 // STOPPED, the last commit is due
)

// scope says which partitions' committed offsets are mirrored, and how.
type scope struct {
	modes map[kafka.TopicPartition]syncMode
	ends  map[kafka.TopicPartition]int64 // syncFinal: where the copy ends; what lies beyond was written since
}

func (s scope) mode(topic string, partition int32) syncMode {
	return s.modes[kafka.TopicPartition{Topic: topic, Partition: partition}]
}

// end is how far into a destination log offsets may be committed.
func (s scope) end(tp kafka.TopicPartition, highWatermark int64) int64 {
	if end, ok := s.ends[tp]; ok {
		return min(end, highWatermark)
	}
	return highWatermark
}

// scope reads the states of all partitions. Only partitions whose destination was found to be the source's copy count: a
// stop of one that never was commits nothing.
func (l *loop) scope() scope {
	s := scope{modes: map[kafka.TopicPartition]syncMode{}, ends: map[kafka.TopicPartition]int64{}}
	topics := map[string]statestore.Topic{}
	final := map[string]bool{}
	for _, t := range l.deps.View.Topics(l.name) {
		if !t.DestinationID.IsZero() && !promoted(t) && t.Wish != mirror.Paused {
			topics[t.Name], final[t.Name] = t, l.finishable(t)
		}
	}
	for _, p := range l.deps.View.Partitions(l.name) {
		t, ok := topics[p.Topic]
		if !ok || t.SourceID != p.TopicID {
			continue
		}
		tp := kafka.TopicPartition{Topic: p.Topic, Partition: p.Index}
		last, _ := l.deps.View.LastMirror(p.Partition)
		switch {
		case final[p.Topic] && last.Offset >= 0:
			s.modes[tp], s.ends[tp] = syncFinal, last.Offset
		case t.Wish == mirror.Stopped:
			s.modes[tp] = syncNote
		case t.Finding.Message == "" && agreesNow(p):
			s.modes[tp] = syncOn
		}
	}
	return s
}

// withPaused adds the partitions of topics that are paused, which a refresh leaves alone and a stop would not.
func (l *loop) withPaused(s scope) scope {
	s.modes = maps.Clone(s.modes)
	for _, p := range l.deps.View.Partitions(l.name) {
		t, ok := l.deps.View.Topic(l.name, p.Topic)
		if ok && t.Wish == mirror.Paused && !wishLost(t) && !t.DestinationID.IsZero() && t.SourceID == p.TopicID && p.State != mirror.Failed {
			s.modes[kafka.TopicPartition{Topic: p.Topic, Partition: p.Index}] = syncOn
		}
	}
	return s
}

// agreesNow reports whether what the destination has of a partition is the source's: compared, and not failed for good.
func agreesNow(p statestore.PartitionState) bool {
	mirrors := func(s mirror.State) bool { return s == mirror.Mirroring || s == mirror.EpochFencing }
	return mirrors(p.State) || p.State == mirror.Failed && p.Kind.Retryable() && mirrors(p.Previous)
}
