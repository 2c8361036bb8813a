package mmm

import (
	"context"
	"maps"
	"slices"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// A destination topic that was there before the mirror is somebody's until it is found to be a copy of the source's. Until
// then it is on trial: guarded, since nobody may write while logs are compared (protocol R20), and with no settings but
// those that the comparison needs and that cannot cost a record. What it had of its own is on record, and returns if the
// topic is turned away or stopped before (docs/decisions/0009).

// trialKeys are the settings that a topic on trial may be given.
var trialKeys = append(slices.Sorted(maps.Keys(forced)), keyTimestampDifference, keyMaxMessageBytes, keyCleanupPolicy)

// standing is what the comparison of all partitions of a topic on trial has come to.
type standing uint8

const (
	approved   standing = iota // it is a copy, or was never in question
	pending                    // some are not compared yet, or only some are copies
	turnedAway                 // all have failed for good before anything was mirrored
)

// onTrial reports whether a topic's own settings are on record.
func onTrial(t statestore.Topic, s statestore.TopicSettings) bool {
	return !s.Trial.IsZero() && s.Trial == t.DestinationID
}

// standing looks at the partitions of a topic on trial, or about to be.
func (l *loop) standing(t statestore.Topic) standing {
	s, _ := l.deps.View.Settings(l.name, t.Name)
	if !s.Untouched && !onTrial(t, s) {
		return approved
	}
	var alike, refused int32
	for i := range t.Partitions {
		p, _ := l.deps.View.Partition(mirror.Partition{Mirror: l.name, TopicID: t.SourceID, Index: i})
		switch {
		case refusedForGood(t, p):
			refused++
		case agreesNow(p):
			alike++
		}
	}
	switch {
	case t.Wish != mirror.Mirroring || t.Partitions == 0:
		return pending
	case refused == t.Partitions:
		return turnedAway
	case alike == t.Partitions && !t.Unready:
		return approved
	}
	return pending
}

// refusedForGood: the partition waits for the operator, and nothing was mirrored into it.
func refusedForGood(t statestore.Topic, p statestore.PartitionState) bool {
	if p.State != mirror.Failed || p.Kind.Retryable() || p.Rearmed != t.Rearm {
		return false
	}
	return p.Previous == mirror.LogTruncation || p.Previous == mirror.Unknown || p.Previous == mirror.NotRecorded
}

// reached reports whether every partition of a stopped topic was mirrored.
func (l *loop) reached(t statestore.Topic) bool {
	for i := range t.Partitions {
		at, ok := l.deps.View.LastMirror(mirror.Partition{Mirror: l.name, TopicID: t.SourceID, Index: i})
		if !ok || at.Offset < 0 {
			return false
		}
	}
	return true
}

// comparing reports whether some partition of a topic is yet to be compared with the source.
func (l *loop) comparing(t statestore.Topic) bool {
	for i := range t.Partitions {
		p, ok := l.deps.View.Partition(mirror.Partition{Mirror: l.name, TopicID: t.SourceID, Index: i})
		if !ok || !compared(p) {
			return true
		}
	}
	return t.Unready
}

// sparing leaves of the wanted settings those that a topic on trial may be given: none of them removes a record.
func (in settingsInput) sparing(want map[string]string) map[string]string {
	spared := map[string]string{}
	for _, key := range trialKeys {
		value, wanted := want[key]
		switch {
		case !wanted:
		case key == keyCleanupPolicy && (compacts(value) || !compacts(in.destination.held[key])):
		case key == keyMaxMessageBytes && in.admits(want) <= in.destination.maxMessageBytes:
		default:
			spared[key] = value
		}
	}
	return spared
}

// try makes the plan for a topic on trial one that can be taken back: what the topic has of its own goes on record with it.
func (p *settingsPlan) try(t statestore.Topic, before statestore.TopicSettings, now topicSettings) {
	p.owned, p.remove, p.trial, p.own = before.Owned, nil, t.DestinationID, before.Own
	if !onTrial(t, before) {
		p.own = maps.Clone(now.explicit)
	}
}

// adopt records, before topics that were there are taken over, that mirrord has set nothing on them yet.
func (l *loop) adopt(ctx context.Context, plans []topicPlan) {
	var indexes []int
	var recs []statestore.Record
	for i, p := range plans {
		if p.create || !p.before.DestinationID.IsZero() || p.after.DestinationID.IsZero() || p.why == topicCreated {
			continue
		}
		indexes = append(indexes, i)
		recs = append(recs, statestore.TopicSettings{Mirror: l.name, Topic: p.after.Name, Untouched: true})
	}
	if err := l.put(ctx, recs...); err != nil {
		l.fail(StepTopics, err)
		for _, i := range indexes {
			plans[i] = plans[i].refused(err)
		}
	}
}

// giveBack returns their own settings to topics that were turned away; the guard is lifted by its own step. First the topic
// is marked as not ready, so that a recover in between finds it as a start would.
func (l *loop) giveBack(ctx context.Context, d destinationSeen) {
	var marks, recs []statestore.Record
	var changes []kafka.ConfigChange
	busy := l.recreating.list()
	for _, t := range l.deps.View.Topics(l.name) {
		s, _ := l.deps.View.Settings(l.name, t.Name)
		now, seen := d.settings[t.Name]
		if !seen || busy[t.Name] || !onTrial(t, s) || !d.same(t) || l.standing(t) != turnedAway {
			continue
		}
		after := t
		after.Unready = true
		marks = append(marks, after)
		set, remove := planReturn(trialKeys, s.Own, now.explicit)
		changes = append(changes, kafka.ConfigChange{Topic: t.Name, Set: set, Delete: remove})
	}
	if err := l.put(ctx, marks...); err != nil {
		l.fail(StepConfigs, err)
		return
	}
	failed := l.deps.Destination.AlterTopicConfigs(ctx, slices.DeleteFunc(slices.Clone(changes), func(c kafka.ConfigChange) bool { return len(c.Set)+len(c.Delete) == 0 }))
	for _, c := range changes {
		if err := failed[c.Topic]; err != nil {
			l.settingsFailed(c.Topic, err)
			continue
		}
		recs = append(recs, statestore.TopicSettings{Mirror: l.name, Topic: c.Topic, Untouched: true})
		l.log.Info("topic given back", mirror.KeyTopic, c.Topic, "set", slices.Sorted(maps.Keys(c.Set)), "deleted", c.Delete)
		l.deps.event(l.name, c.Topic, "topic given back", "it is no copy of the source's: it has its own settings again")
	}
	l.fail(StepConfigs, l.put(ctx, recs...))
}

// returning is what a promotion puts back: these keys, to these values, or away.
func (l *loop) returning(t statestore.Topic) (keys []string, values map[string]string) {
	s, _ := l.deps.View.Settings(l.name, t.Name)
	switch {
	case s.Untouched:
		return nil, nil
	case onTrial(t, s) && !l.reached(t):
		return trialKeys, s.Own
	case onTrial(t, s):
		return slices.Concat(s.Owned, trialKeys), s.Source
	}
	return s.Owned, s.Source
}

// judged ends the trial of a topic that was promoted.
func (l *loop) judged(t statestore.Topic) (r statestore.TopicSettings, ok bool) {
	s, _ := l.deps.View.Settings(l.name, t.Name)
	if !onTrial(t, s) {
		return r, false
	}
	r = statestore.TopicSettings{Mirror: l.name, Topic: t.Name, Compacted: s.Compacted}
	if l.reached(t) {
		r.Owned, r.Source = slices.Concat(s.Owned, trialKeys), s.Source
		slices.Sort(r.Owned)
		r.Owned = slices.Compact(r.Owned)
	} else {
		r.Untouched = true
	}
	return r, true
}
