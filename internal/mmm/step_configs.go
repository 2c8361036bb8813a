package mmm

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// configs makes the settings of mirror topics follow the source's. It gives the topics that have what they can have.
func (l *loop) configs(ctx context.Context, seen observation, d destinationSeen) (topics []statestore.Topic) {
	defer l.settle(ctx, StepConfigs)
	m, ok := l.deps.View.Mirror(l.name)
	if !ok {
		return nil
	}
	clear(l.trouble)
	l.giveBack(ctx, d)
	busy := l.recreating.list()
	var recs []statestore.Record
	var changes []kafka.ConfigChange
	left := map[string]bool{}
	var lowered []string
	for _, t := range l.deps.View.Topics(l.name) {
		if !followsSettings(t) || !d.same(t) || busy[t.Name] || !l.circles.allows(t) || l.standing(t) == turnedAway {
			delete(l.seeding, t.Name)
			continue
		}
		plan, ok := l.planConfigs(ctx, m, t, seen, d)
		if ok || seen.settingsErr[t.Name] != nil || d.settingsErr[t.Name] != nil {
			topics = append(topics, t)
		}
		if !ok {
			continue
		}
		for _, key := range plan.left {
			left[key] = true
		}
		if plan.lowered {
			lowered = append(lowered, t.Name)
		}
		if r, changed := l.settingsRecord(t.Name, plan); changed {
			recs = append(recs, r)
		}
		if plan.changes() {
			changes = append(changes, kafka.ConfigChange{Topic: t.Name, Set: plan.set, Delete: plan.remove})
		}
	}
	l.tellLeft(ctx, left)
	l.board.update(func(s *Status) { s.Lowered = lowered })
	if err := l.put(ctx, recs...); err != nil { // what mirrord sets is recorded before it is set
		l.fail(StepConfigs, err)
		return nil
	}
	l.alter(ctx, changes)
	return topics
}

// followsSettings reports whether a topic's settings are mirrored: not while PAUSED, and never once STOPPED.
func followsSettings(t statestore.Topic) bool {
	return t.Wish == mirror.Mirroring && t.Finding.Message == "" && !t.DestinationID.IsZero()
}

func (l *loop) planConfigs(ctx context.Context, m statestore.Mirror, t statestore.Topic, seen observation, d destinationSeen) (settingsPlan, bool) {
	source, ok := seen.settings[t.Name]
	now, there := d.settings[t.Name]
	for _, from := range []struct {
		side string
		err  error
	}{{"source", seen.settingsErr[t.Name]}, {"destination", d.settingsErr[t.Name]}} {
		if from.err != nil {
			l.settingsFailed(t.Name, fmt.Errorf("%s: %w", from.side, from.err))
		}
	}
	if !ok || !there {
		return settingsPlan{}, false
	}
	record, _ := l.deps.View.Settings(l.name, t.Name)
	trial := l.standing(t) != approved
	plan := planSettings(settingsInput{
		source: source, destination: now, replicas: d.topics[t.Name].replicas, exclude: m.TopicPropertiesExclude, known: d.known,
		owned: record.Owned, trial: trial,
	})
	if trial {
		plan.try(t, record, now)
	}
	if compacts(plan.set[keyCleanupPolicy]) && !compacts(now.held[keyCleanupPolicy]) && l.comparing(t) {
		delete(plan.set, keyCleanupPolicy) // it may hold records of its own that the source's policy would cost it
	}
	l.spareSeeding(ctx, t, plan, seen, now)
	return plan, true
}

// settingsFailed notes that a topic's settings could not be brought over.
func (l *loop) settingsFailed(topic string, err error) {
	l.fail(StepConfigs, err)
	l.trouble[topic] = "settings are not mirrored: " + err.Error()
}

func (l *loop) settingsRecord(topic string, plan settingsPlan) (statestore.TopicSettings, bool) {
	before, _ := l.deps.View.Settings(l.name, topic)
	after := statestore.TopicSettings{Mirror: l.name, Topic: topic, Owned: plan.owned, Source: plan.source, Trial: plan.trial, Own: plan.own}
	after.Compacted = before.Compacted || compacts(plan.source[keyCleanupPolicy])
	return after, before.Untouched || before.Compacted != after.Compacted || before.Trial != after.Trial || !maps.Equal(before.Own, after.Own) ||
		!slices.Equal(before.Owned, after.Owned) || !maps.Equal(before.Source, after.Source)
}

// tellLeft says once which settings the destination does not know.
func (l *loop) tellLeft(ctx context.Context, left map[string]bool) {
	keys := slices.Sorted(maps.Keys(left))
	l.board.update(func(s *Status) { s.SettingsLeft = keys })
	if len(keys) == 0 {
		return
	}
	l.speaker.say(ctx, slog.LevelWarn, "settings", "settings left out that the destination does not know", strings.Join(keys, " "), "keys", keys)
}

// alter changes settings; a topic for which it is refused keeps what it had and says so.
func (l *loop) alter(ctx context.Context, changes []kafka.ConfigChange) {
	if len(changes) == 0 {
		return
	}
	failed := l.deps.Destination.AlterTopicConfigs(ctx, changes)
	for _, c := range changes {
		err := failed[c.Topic]
		if err != nil && kafka.InvalidConfig(err) {
			if blamed := blamedKeys(c.Set, err.Error()); len(blamed) > 0 { // the others are as good as before
				for _, key := range blamed {
					delete(c.Set, key)
				}
				l.settingsFailed(c.Topic, fmt.Errorf("destination: %w", err))
				if len(c.Set)+len(c.Delete) == 0 {
					continue
				}
				err = l.deps.Destination.AlterTopicConfigs(ctx, []kafka.ConfigChange{c})[c.Topic]
			}
		}
		if err != nil {
			l.settingsFailed(c.Topic, fmt.Errorf("destination: %w", err))
			continue
		}
		l.log.Info("settings changed", mirror.KeyTopic, c.Topic, "set", slices.Sorted(maps.Keys(c.Set)), "deleted", c.Delete)
	}
}
