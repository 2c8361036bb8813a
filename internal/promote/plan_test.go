package promote

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"mirrord/internal/kafka"
)

var somePartition = kafka.TopicPartition{Topic: "t", Partition: 0}

func TestPlanStep(t *testing.T) {
	reassignment := func(replicas, adding, removing []int32) map[kafka.TopicPartition]kafka.Reassignment {
		return map[kafka.TopicPartition]kafka.Reassignment{somePartition: {Replicas: replicas, Adding: adding, Removing: removing}}
	}
	three := []int32{1, 2, 3}
	for _, tc := range []struct {
		name string
		part kafka.Partition
		in   surroundings
		want step
	}{
		{
			"one replica, a broker to spare",
			kafka.Partition{Leader: 1, Replicas: []int32{1}, ISR: []int32{1}},
			surroundings{brokers: []int32{1, 2}},
			step{how: byReplica, with: []int32{2, 1}, back: []int32{1}},
		},
		{
			"the addition stands before the last",
			kafka.Partition{Leader: 1, Replicas: []int32{1, 2}, ISR: []int32{1, 2}},
			surroundings{brokers: three},
			step{how: byReplica, with: []int32{1, 3, 2}, back: []int32{1, 2}},
		},
		{
			"spare brokers share the work",
			kafka.Partition{Index: 4, Leader: 1, Replicas: []int32{1}, ISR: []int32{1}},
			surroundings{brokers: []int32{1, 2, 3, 5}},
			step{how: byReplica, with: []int32{3, 1}, back: []int32{1}},
		},
		{
			"every broker hosts it",
			kafka.Partition{Leader: 1, Replicas: three, ISR: three},
			surroundings{brokers: three, reorder: true},
			step{how: byElection, with: []int32{2, 1, 3}, back: three},
		},
		{
			"every broker alive hosts it",
			kafka.Partition{Leader: 2, Replicas: three, ISR: []int32{2, 3}},
			surroundings{brokers: []int32{2, 3}, reorder: true},
			step{how: byElection, with: []int32{3, 1, 2}, back: three},
		},
		{
			"the preferred one does not lead",
			kafka.Partition{Leader: 2, Replicas: three, ISR: three},
			surroundings{brokers: three, reorder: true},
			step{how: byElection, with: three, back: three},
		},
		{
			"leaders may not move",
			kafka.Partition{Leader: 1, Replicas: three, ISR: three},
			surroundings{brokers: three},
			step{how: never, why: "every broker hosts a replica"},
		},
		{
			"one broker",
			kafka.Partition{Leader: 1, Replicas: []int32{1}, ISR: []int32{1}},
			surroundings{brokers: []int32{1}, reorder: true},
			step{how: never, why: "the cluster has one broker"},
		},
		{
			"one out of sync",
			kafka.Partition{Leader: 1, Replicas: three, ISR: []int32{1, 2}},
			surroundings{brokers: three, reorder: true},
			step{how: notNow, why: "every broker hosts a replica, and not all are in sync"},
		},
		{
			"alone",
			kafka.Partition{Leader: 1, Replicas: three, ISR: []int32{1}},
			surroundings{brokers: []int32{1}, reorder: true},
			step{how: notNow, why: "every broker hosts a replica, and not all are in sync"},
		},
		{
			"no leader",
			kafka.Partition{Leader: -1, Replicas: []int32{1}},
			surroundings{brokers: three},
			step{how: notNow, why: "it has no leader"},
		},
		{
			"our own addition, unfinished",
			kafka.Partition{Leader: 1, Replicas: []int32{1, 3, 2}, ISR: []int32{1, 2}},
			surroundings{brokers: three, ongoing: reassignment([]int32{1, 3, 2}, []int32{3}, nil)},
			step{how: byUndoing, with: []int32{1, 3, 2}, back: []int32{1, 2}},
		},
		{
			"an addition at the end",
			kafka.Partition{Leader: 1, Replicas: three, ISR: []int32{1, 2}},
			surroundings{brokers: three, ongoing: reassignment(three, []int32{3}, nil)},
			step{how: foreign, why: "a reassignment of its replicas is in progress"},
		},
		{
			"a move",
			kafka.Partition{Leader: 1, Replicas: []int32{1, 3, 2}, ISR: []int32{1, 2}},
			surroundings{brokers: three, ongoing: reassignment([]int32{1, 3, 2}, []int32{3}, []int32{2})},
			step{how: foreign, why: "a reassignment of its replicas is in progress"},
		},
		{
			"our own addition, completed",
			kafka.Partition{Leader: 1, Replicas: []int32{1, 3, 2}, ISR: []int32{1, 2, 3}},
			surroundings{brokers: three, reorder: true, tried: map[kafka.TopicPartition]step{
				somePartition: {how: byReplica, with: []int32{1, 3, 2}, back: []int32{1, 2}},
			}},
			step{how: byRestoring, back: []int32{1, 2}},
		},
	} {
		got := planStep(somePartition, tc.part, tc.in)
		if got.how != tc.want.how || got.why != tc.want.why || !slices.Equal(got.with, tc.want.with) || !slices.Equal(got.back, tc.want.back) {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

// drawPartition is any partition of a healthy or limping cluster.
func drawPartition(t *rapid.T) (kafka.Partition, []int32) {
	all := []int32{1, 2, 3, 4, 5}[:rapid.IntRange(1, 5).Draw(t, "registered")]
	replicas := rapid.Permutation(all).Draw(t, "order")[:rapid.IntRange(1, len(all)).Draw(t, "replicas")]
	alive := rapid.SliceOfDistinct(rapid.SampledFrom(all), func(b int32) int32 { return b }).Draw(t, "alive")
	slices.Sort(alive)
	isr := slices.DeleteFunc(slices.Clone(replicas), func(r int32) bool {
		return !slices.Contains(alive, r) || rapid.IntRange(0, 3).Draw(t, "lag") == 0
	})
	p := kafka.Partition{Index: rapid.Int32Range(0, 99).Draw(t, "index"), Leader: -1, Replicas: replicas, ISR: isr}
	if len(isr) > 0 {
		p.Leader = rapid.SampledFrom(isr).Draw(t, "leader")
	}
	return p, alive
}

func TestPlanStepLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, alive := drawPartition(t)
		in := surroundings{brokers: alive, reorder: rapid.Bool().Draw(t, "reorder")}
		s := planStep(somePartition, p, in)
		switch s.how {
		case byReplica:
			added := without(s.with, p.Replicas)
			begun := kafka.Reassignment{Replicas: s.with, Adding: added}
			if len(added) != 1 || !slices.Contains(alive, added[0]) || !slices.Equal(without(s.with, added), p.Replicas) || !ours(begun) {
				t.Fatalf("%+v of %+v", s, p)
			}
			undo := planStep(somePartition, p, surroundings{brokers: alive, ongoing: map[kafka.TopicPartition]kafka.Reassignment{somePartition: begun}})
			if undo.how != byUndoing || !slices.Equal(undo.back, p.Replicas) {
				t.Fatalf("half of %+v is not recognised: %+v", s, undo)
			}
		case byElection:
			if !in.reorder || len(without(alive, p.Replicas)) > 0 {
				t.Fatalf("leaders move without need: %+v of %+v", s, p)
			}
			if s.with[0] == p.Leader || !slices.Contains(p.ISR, s.with[0]) || len(without(p.Replicas, s.with)) > 0 || len(s.with) != len(p.Replicas) {
				t.Fatalf("%+v of %+v", s, p)
			}
		case never, notNow:
			if s.why == "" || p.Leader >= 0 && len(without(alive, p.Replicas)) > 0 {
				t.Fatalf("given up too early: %+v of %+v", s, p)
			}
		default:
			t.Fatalf("%+v of %+v, and nothing is in progress", s, p)
		}
	})
}

// Other people's tools add replicas at the end, replace them or reorder them; none of that is taken for our own.
func TestR17_OtherPeoplesReassignmentsAreNotOurs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		replicas := rapid.SliceOfNDistinct(rapid.Int32Range(1, 9), 1, 4, func(b int32) int32 { return b }).Draw(t, "replicas")
		target := append(slices.Clone(replicas), rapid.SliceOfNDistinct(rapid.Int32Range(10, 14), 1, 3, func(b int32) int32 { return b }).Draw(t, "added")...)
		removed := replicas[:rapid.IntRange(0, len(replicas)).Draw(t, "removed")]
		r := kafka.Reassignment{Replicas: append(without(target, removed), removed...), Adding: without(target, replicas), Removing: removed}
		if ours(r) {
			t.Fatalf("%+v", r)
		}
	})
}

func TestTurnsEndWhereTheyBegan(t *testing.T) {
	s := step{how: byElection, with: []int32{2, 1}, back: []int32{1, 2}}
	ts := turns(map[kafka.TopicPartition]step{somePartition: s})
	if len(ts) != 4 || !slices.Equal(ts[0].Reassign[somePartition], s.with) || !slices.Equal(ts[2].Reassign[somePartition], s.back) ||
		!slices.Equal(ts[1].Elect, ts[3].Elect) || !slices.Equal(ts[1].Elect, []kafka.TopicPartition{somePartition}) {
		t.Errorf("%+v", ts)
	}
}
