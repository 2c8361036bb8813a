package promote

import (
	"maps"
	"slices"

	"mirrord/internal/kafka"
)

// Leader epochs rise only when the controller changes something about a partition's leader or replicas
// (broker-side rule: a change record that carries a leader, or that removes a replica). Two changes that end where they
// began do so:
//
//   - add a replica and take it away again: +1, the leader stays, no data moves;
//   - let another replica in sync lead, and the first one again: +2, the leader moves twice. For partitions that every
//     broker hosts, and in promotion only.
//
// A replica that is added for a moment stands right before the last one. Nobody else adds replicas there, so an addition
// that a crashed process left unfinished is recognised by its place, whoever takes over.

// how says by which way a partition's leader epoch can be raised now.
type how int8

const (
	byReplica   how = iota // with, cancel; any number of times in a row
	byElection             // with, elect, back, elect
	byUndoing              // cancel: an addition of our own is unfinished
	byRestoring            // back: an addition of our own was completed before it was cancelled
	never                  // the partition has no other broker to turn to
	notNow                 // may pass: no leader, nobody else in sync
	foreign                // somebody else's reassignment is in progress
)

// step is one way up for one partition.
type step struct {
	how        how
	with, back []int32 // replicas in between, and as they were
	why        string  // for never, notNow and foreign
}

// surroundings are what a step is planned in.
type surroundings struct {
	brokers []int32 // alive, ascending
	ongoing map[kafka.TopicPartition]kafka.Reassignment
	tried   map[kafka.TopicPartition]step // the last change of this very call, of which the end may be missing
	reorder bool                          // leaders may move
}

// planStep is pure. What brokers say about replicas may be moments old, hence: an addition is ended by a cancellation,
// which the controller carries out on what is true then; and replicas are reordered only when all that are alive are in
// sync, which the ones of an unfinished addition are not.
func planStep(tp kafka.TopicPartition, p kafka.Partition, in surroundings) step {
	if ongoing, ok := in.ongoing[tp]; ok {
		if !ours(ongoing) {
			return step{how: foreign, why: "a reassignment of its replicas is in progress"}
		}
		return step{how: byUndoing, with: ongoing.Replicas, back: without(ongoing.Replicas, ongoing.Adding)}
	}
	if last, ok := in.tried[tp]; ok && slices.Equal(last.with, p.Replicas) {
		if last.how == byElection {
			return last
		}
		return step{how: byRestoring, back: last.back}
	}
	if p.Leader < 0 {
		return step{how: notNow, why: "it has no leader"}
	}
	if spare := without(in.brokers, p.Replicas); len(spare) > 0 {
		with := beforeLast(p.Replicas, spare[int(p.Index)%len(spare)])
		return step{how: byReplica, with: with, back: p.Replicas}
	}
	return planElection(p, in)
}

// planElection is for a partition that every broker hosts.
func planElection(p kafka.Partition, in surroundings) step {
	alive := slices.DeleteFunc(slices.Clone(p.Replicas), func(r int32) bool { return !slices.Contains(in.brokers, r) })
	others := without(alive, []int32{p.Leader})
	switch {
	case len(p.Replicas) < 2:
		return step{how: never, why: "the cluster has one broker"}
	case !in.reorder:
		return step{how: never, why: "every broker hosts a replica"}
	case len(others) == 0 || len(without(alive, p.ISR)) > 0:
		return step{how: notNow, why: "every broker hosts a replica, and not all are in sync"}
	}
	with := append([]int32{others[0]}, without(p.Replicas, others[:1])...)
	return step{how: byElection, with: with, back: p.Replicas}
}

// ours recognises an unfinished addition of this package.
func ours(r kafka.Reassignment) bool {
	n := len(r.Replicas)
	return len(r.Adding) == 1 && len(r.Removing) == 0 && n >= 2 && r.Replicas[n-2] == r.Adding[0]
}

// beforeLast puts a broker where ours recognises it.
func beforeLast(replicas []int32, broker int32) []int32 {
	return slices.Insert(slices.Clone(replicas), len(replicas)-1, broker)
}

// without is a less b, in the order of a.
func without(a, b []int32) []int32 {
	return slices.DeleteFunc(slices.Clone(a), func(x int32) bool { return slices.Contains(b, x) })
}

// turns moves the leaders of partitions, at most kafka.PlacementsPerTurn, to their second ones and back.
func turns(elections map[kafka.TopicPartition]step) []kafka.Turn {
	with, back := map[kafka.TopicPartition][]int32{}, map[kafka.TopicPartition][]int32{}
	for tp, s := range elections {
		with[tp], back[tp] = s.with, s.back
	}
	elect := slices.Collect(maps.Keys(elections))
	return []kafka.Turn{{Reassign: with}, {Elect: elect}, {Reassign: back}, {Elect: elect}}
}

// brokerIDs are the brokers alive, ascending.
func brokerIDs(m kafka.Metadata) []int32 { return slices.Sorted(maps.Keys(m.Brokers)) }
