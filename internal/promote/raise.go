package promote

import (
	"context"
	"fmt"
	"slices"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

const (
	raiseRounds = 4               // everything is looked at anew after a round that did not bring all to the goal
	quiet       = 2 * time.Second // for the controller's changes to reach the brokers, counted from the last that did
)

// goal says how high, and what may be done for it.
type goal struct {
	wanted   func(t mirror.Target, epoch int32) int32 // given the leader epoch at first sight
	reorder  bool                                     // leaders may move
	optional bool                                     // what may pass is no error either
}

// ascent is one call of raise.
type ascent struct {
	*Promoter
	goal
	targets  []mirror.Target
	results  []Result
	want     []int32                        // leader epoch to be reached; −1: not seen yet
	accepted map[kafka.TopicPartition]int32 // leader epoch that follows from what the controller has accepted
	tried    map[kafka.TopicPartition]step  // the last change that leaves replicas as they were only when it ends
	causes   map[kafka.TopicPartition]error // the last thing that went wrong
}

// raise brings the leader epochs of targets to the goal, in a number of requests that does not grow with them but by one
// for every kafka.PlacementsPerTurn.
func (p *Promoter) raise(ctx context.Context, ts []mirror.Target, results []Result, g goal) {
	a := &ascent{
		Promoter: p, goal: g, targets: ts, results: results, want: slices.Repeat([]int32{-1}, len(ts)),
		accepted: map[kafka.TopicPartition]int32{}, tried: map[kafka.TopicPartition]step{}, causes: map[kafka.TopicPartition]error{},
	}
	pending := make([]int, len(ts))
	for i := range ts {
		pending[i] = i
	}
	begun := time.Now()
	m, pending := a.look(ctx, pending)
	if len(pending) == 0 {
		return
	}
	count := len(pending)
	for round := 0; round < raiseRounds && len(pending) > 0; round++ {
		if pending = a.climb(ctx, m, pending); len(pending) > 0 {
			m, pending = a.settle(ctx, pending)
		}
	}
	for _, i := range pending {
		a.giveUp(i)
	}
	a.report(count, time.Since(begun))
}

// look asks for metadata and returns those of the pending targets that are not where they should be.
func (a *ascent) look(ctx context.Context, pending []int) (kafka.Metadata, []int) {
	if len(pending) == 0 {
		return kafka.Metadata{}, nil
	}
	topics := make([]string, 0, len(pending))
	for _, i := range pending {
		topics = append(topics, a.targets[i].Topic)
	}
	slices.Sort(topics)
	m, err := a.cluster.Metadata(ctx, slices.Compact(topics)...)
	if err != nil {
		a.fail(pending, err)
		return m, nil
	}
	return m, slices.DeleteFunc(slices.Clone(pending), func(i int) bool { return a.arrived(m, i) })
}

// arrived is true for a target that needs nothing more: it is high enough, or cannot be looked at.
func (a *ascent) arrived(m kafka.Metadata, i int) bool {
	t, r := a.targets[i], &a.results[i]
	part, err := find(m, t)
	if err != nil {
		a.fail([]int{i}, err)
		return true
	}
	r.LeaderEpoch = part.LeaderEpoch
	if a.want[i] < 0 {
		a.want[i] = a.wanted(t, part.LeaderEpoch)
	}
	last, ok := a.tried[name(t)]
	leftOver := ok && slices.Equal(last.with, part.Replicas)
	return part.LeaderEpoch >= a.want[i] && !leftOver
}

// find checks that the partition is the one that is meant (protocol R9).
func find(m kafka.Metadata, t mirror.Target) (kafka.Partition, error) {
	topic, ok := m.Topics[t.Topic]
	switch {
	case !ok:
		return kafka.Partition{}, mirror.Errorf(mirror.Retriable, "topic %s is missing in the destination's metadata", t.Topic)
	case topic.Err != nil:
		return kafka.Partition{}, fmt.Errorf("topic %s: %w", t.Topic, topic.Err)
	case !t.DestinationID.IsZero() && topic.ID != t.DestinationID:
		return kafka.Partition{}, mirror.Errorf(mirror.DestinationGone, "topic %s has another id than the mirrored one: %s, not %s",
			t.Topic, topic.ID, t.DestinationID)
	}
	part, ok := topic.Partition(t.Index)
	if !ok {
		return part, mirror.Errorf(mirror.DestinationGone, "topic %s has no partition %d on the destination", t.Topic, t.Index)
	}
	return part, nil
}

// climb sends one round of changes for the pending targets and returns those that are on their way.
func (a *ascent) climb(ctx context.Context, m kafka.Metadata, pending []int) []int {
	err := a.leased()
	var ongoing map[kafka.TopicPartition]kafka.Reassignment
	if err == nil {
		ongoing, err = a.cluster.ListReassignments(ctx)
	}
	if err != nil {
		a.refuse(pending, err)
		return nil
	}
	in := surroundings{brokers: brokerIDs(m), ongoing: ongoing, tried: a.tried, reorder: a.reorder}
	r := round{steps: map[how]map[kafka.TopicPartition]step{}, ascent: a}
	for _, i := range pending {
		part, err := find(m, a.targets[i])
		if err != nil {
			a.fail([]int{i}, err)
			continue
		}
		s := planStep(name(a.targets[i]), part, in)
		if s.how >= never {
			a.halt(i, s)
			continue
		}
		a.accepted[name(a.targets[i])] = part.LeaderEpoch
		r.add(i, s)
	}
	return r.send(ctx)
}

// settle looks until all have arrived or none does any more. Those of which the controller has accepted enough are taken
// for arrived then: brokers under load hear of it later, and another round would only add to their load.
func (a *ascent) settle(ctx context.Context, pending []int) (m kafka.Metadata, _ []int) {
	since, pause := time.Now(), 5*time.Millisecond
	for {
		before := len(pending)
		if m, pending = a.look(ctx, pending); len(pending) < before {
			since = time.Now()
		}
		if len(pending) == 0 || time.Since(since) > quiet {
			return m, slices.DeleteFunc(pending, a.taken)
		}
		if err := sleep(ctx, pause); err != nil {
			a.fail(pending, err)
			return m, nil
		}
		pause = min(2*pause, 160*time.Millisecond)
	}
}

func (a *ascent) taken(i int) bool {
	accepted := a.accepted[name(a.targets[i])]
	if accepted < a.want[i] {
		return false
	}
	a.results[i].LeaderEpoch = accepted
	return true
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return mirror.Errorf(mirror.Retriable, "%w", context.Cause(ctx))
	}
}
