package mmm

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// finish ends the promotion of the topics whose partitions are all STOPPED. It needs the destination only: the source's
// last committed offsets, settings and rights to write are records. In order: the last commit of groups, the source's
// settings, the guard, the rights that waited; then the record says that all is done. Every part can be repeated.
func (l *loop) finish(ctx context.Context) {
	defer l.recordStatus(ctx)
	defer l.settle(ctx, StepFinish)
	l.nextFinish = time.Now().Add(tryFinish)
	var done []statestore.Topic
	for _, t := range l.deps.View.Topics(l.name) {
		if l.finishable(t) {
			done = append(done, t)
		}
	}
	if len(done) == 0 || l.deps.Lease() != nil {
		return
	}
	l.lastCommit(ctx)
	done, err := l.returnSettings(ctx, done)
	if err != nil {
		l.fail(StepFinish, err)
	}
	if err := l.openUp(ctx, done); err != nil {
		l.fail(StepFinish, err)
		return
	}
	l.recordPromoted(ctx, done)
}

// lastCommit commits what was recorded as the source's last word. A failure is told and does not hold up the promotion
// for long: it is repeated while the other parts are.
func (l *loop) lastCommit(ctx context.Context) {
	source := groupsSeen{byName: map[string]groupSeen{}}
	for _, g := range l.deps.View.Groups(l.name) {
		seen := groupSeen{kind: g.Type, offsets: map[kafka.TopicPartition]position{}}
		for _, r := range g.Rows {
			if r.SourceOffset >= 0 {
				seen.offsets[kafka.TopicPartition{Topic: r.Topic, Partition: r.Partition}] = position{r.SourceOffset, r.Metadata}
			}
		}
		source.byName[g.Group] = seen
	}
	l.syncGroups(ctx, source)
	l.settle(ctx, StepGroups)
	l.settle(ctx, StepShareGroups)
}

// returnSettings gives topics the source's own settings. It returns the topics that have them; one that does not exist any
// more has nothing to get.
func (l *loop) returnSettings(ctx context.Context, topics []statestore.Topic) (done []statestore.Topic, err error) {
	var ask []string
	for _, t := range topics {
		ask = append(ask, t.Name)
	}
	meta, err := within(ctx, l.cfg.CallTimeout, func(ctx context.Context) (kafka.Metadata, error) {
		return l.deps.Destination.Metadata(ctx, ask...)
	})
	if err != nil {
		return nil, fmt.Errorf("look at the promoted topics: %w", err)
	}
	there := catalogOf(meta)
	ask = slices.DeleteFunc(ask, func(name string) bool { _, ok := there[name]; return !ok })
	settings, errs := l.observer().settings(ctx, l.deps.Destination, ask)
	var changes []kafka.ConfigChange
	failed := map[string]error{}
	for _, t := range topics {
		info, ok := there[t.Name]
		if !ok || info.err == nil && !sameTopic(info.id, t.DestinationID) {
			continue // deleted, or somebody else's by now
		}
		failed[t.Name] = errs[t.Name]
		if now, ok := settings[t.Name]; ok {
			keys, values := l.returning(t)
			if set, gone := planReturn(keys, values, now.explicit); len(set)+len(gone) > 0 {
				changes = append(changes, kafka.ConfigChange{Topic: t.Name, Set: set, Delete: gone})
			}
		}
	}
	if len(changes) > 0 {
		for name, err := range l.deps.Destination.AlterTopicConfigs(ctx, changes) {
			failed[name] = err
		}
	}
	for _, t := range topics {
		if failed[t.Name] != nil {
			err = failed[t.Name]
			continue
		}
		done = append(done, t)
	}
	return done, err
}

// openUp lifts the guard of topics and grants the rights to write that waited for them.
func (l *loop) openUp(ctx context.Context, done []statestore.Topic) error {
	records := l.deps.View.ACLs(l.name)
	if len(records) == 0 || len(done) == 0 {
		return nil
	}
	there, err := within(ctx, l.cfg.CallTimeout, l.deps.Destination.DescribeACLs)
	if kafka.SecurityDisabled(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the promoted topics for writing: %w", err)
	}
	var names []string
	open := map[string]bool{}
	for _, t := range done {
		names, open[t.Name] = append(names, t.Name), true
	}
	in := aclInput{mirrorName: l.name, destination: there, records: records}
	var guards []string
	for _, t := range l.deps.View.Topics(l.name) {
		if !open[t.Name] && !promoted(t) {
			in.active = append(in.active, t.Name)
		}
	}
	for a := range readLedger(records)[ownedGuard] {
		if !open[a.ResourceName] {
			guards = append(guards, a.ResourceName)
		}
	}
	lifted := planGuards(in, guards)
	lifted.create, lifted.put = nil, nil // those that are missing are not this step's business
	if err := l.applyACLs(ctx, lifted); err != nil {
		return fmt.Errorf("lift the read-only guard: %w", err)
	}
	if err := l.applyACLs(ctx, planGrants(in, names)); err != nil {
		return fmt.Errorf("grant the rights to write: %w", err)
	}
	return nil
}

// recordPromoted records that all is done.
func (l *loop) recordPromoted(ctx context.Context, done []statestore.Topic) {
	var recs []statestore.Record
	var told []string
	for _, t := range done {
		after := t
		after.Promoted = true
		now, ok := l.deps.View.Topic(l.name, t.Name)
		if merged, fits := mergeTopic(now, t, after); ok && fits {
			recs, told = append(recs, merged), append(told, t.Name)
			if r, ended := l.judged(t); ended {
				recs = append(recs, r)
			}
		}
	}
	if err := l.put(ctx, recs...); err != nil {
		l.fail(StepFinish, err)
		return
	}
	if len(told) == 0 {
		return
	}
	l.log.LogAttrs(ctx, slog.LevelInfo, "topics promoted", slog.Int(mirror.KeyCount, len(told)), slog.Any(mirror.KeyTopic, names(told)))
	for _, name := range told {
		l.deps.event(l.name, name, "topic promoted", "")
	}
}

// promoted reports whether a topic is STOPPED and nothing is left to be done for it.
func promoted(t statestore.Topic) bool { return t.Wish == mirror.Stopped && t.Promoted }
