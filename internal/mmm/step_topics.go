package mmm

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// topics brings the mirror's topics into being and keeps their records: discovery, creation, growth, findings.
func (l *loop) topics(ctx context.Context, seen observation, d destinationSeen) {
	defer l.settle(ctx, StepTopics)
	defer l.settle(ctx, StepPartitions)
	m, ok := l.deps.View.Mirror(l.name)
	if !ok {
		return
	}
	plans, notes := planTopics(l.topicsInput(m, seen.topics, d))
	l.tellNotes(ctx, selectionOf(m).unmatched(seen.topics), notes)
	plans = l.create(ctx, m, plans, seen, d)
	l.grow(ctx, plans)
	l.adopt(ctx, plans)
	if err := l.guardFirst(ctx, plans, d); err != nil {
		l.fail(StepGuard, err)
		l.settle(ctx, StepGuard)
	}
	l.record(ctx, plans)
}

func (l *loop) topicsInput(m statestore.Mirror, source catalog, d destinationSeen) topicsInput {
	states := map[string][]statestore.PartitionState{}
	for _, p := range l.deps.View.Partitions(l.name) {
		states[p.Topic] = append(states[p.Topic], p)
	}
	return topicsInput{
		mirror: m, circles: l.circles, topics: l.deps.View.Topics(l.name), source: source, destination: d.topics, asked: d.asked, states: states,
		trouble: l.trouble, busy: l.recreating.list(), young: l.young(d.topics), taken: func(topic string) (string, bool) { return takenBy(l.deps.View, l.name, topic) },
	}
}

// tellNotes says once which patterns match nothing and which topics were left alone; of many, how many and some of them.
func (l *loop) tellNotes(ctx context.Context, unmatched []string, notes map[string]string) {
	for _, item := range unmatched {
		notes[item] = "matches no topic of the source"
	}
	const event = "item of topics_include or start without effect"
	var news []string
	for _, subject := range slices.Sorted(maps.Keys(notes)) {
		if l.speaker.news("note "+subject, notes[subject]) {
			news = append(news, subject)
		}
	}
	if len(news) > linesAtOnce {
		l.log.WarnContext(ctx, event, mirror.KeyCount, len(news), "items", names(news),
			mirror.KeyCause, fmt.Sprintf("%s %s, …", news[0], notes[news[0]]))
		news = nil
	}
	for _, subject := range news {
		l.log.WarnContext(ctx, event, "item", subject, mirror.KeyCause, fmt.Sprintf("%s %s", subject, notes[subject]))
	}
	l.board.update(func(s *Status) {
		for subject := range s.Notes {
			if _, ok := notes[subject]; !ok {
				l.speaker.over("note " + subject)
			}
		}
		s.Notes = notes
	})
}

// create creates the destination topics that are missing, with their settings. A refusal becomes the topic's message.
func (l *loop) create(ctx context.Context, m statestore.Mirror, plans []topicPlan, seen observation, d destinationSeen) []topicPlan {
	var indexes []int
	var specs []kafka.TopicSpec
	var owned []statestore.Record
	for i, p := range plans {
		if !p.create {
			continue
		}
		settings, err := l.settingsOfNew(m, p.after.Name, seen, d)
		if err != nil {
			plans[i] = p.refused(err)
			l.fail(StepTopics, err)
			continue
		}
		indexes = append(indexes, i)
		specs = append(specs, kafka.TopicSpec{
			Name: p.after.Name, Partitions: p.after.Partitions,
			ReplicationFactor: m.ReplicationFactor, Configs: settings.set,
		})
		if r, changed := l.settingsRecord(p.after.Name, settings); changed {
			owned = append(owned, r)
		}
	}
	if len(specs) == 0 {
		return plans
	}
	if err := l.put(ctx, owned...); err != nil { // what mirrord sets is recorded before it is set
		l.fail(StepTopics, err)
		for _, i := range indexes {
			plans[i] = plans[i].refused(err)
		}
		return plans
	}
	for k, created := range l.createWithout(ctx, specs) {
		i := indexes[k]
		if created.Err != nil {
			err := fmt.Errorf("destination: %w", created.Err)
			plans[i] = plans[i].refused(err)
			if !kafka.TopicExists(err) { // somebody was faster: the next cycle sees the topic
				l.fail(StepTopics, err)
			}
			continue
		}
		plans[i].after.DestinationID = created.ID
		l.created[plans[i].after.Name] = time.Now()
		plans[i].why = topicCreated
	}
	return plans
}

// topicCreated is what happened to a topic that was not there.
const topicCreated = "topic created"

// youth is for how long a new topic may not be seen yet: a broker applies thousands of them one after another.
const youth = 5 * time.Minute

// young lists the topics that were created a moment ago and have not been seen since.
func (l *loop) young(destination catalog) map[string]bool {
	names := map[string]bool{}
	for name, at := range l.created {
		if _, seen := destination[name]; seen || time.Since(at) > youth {
			delete(l.created, name)
			continue
		}
		names[name] = true
	}
	return names
}

// refused keeps the record as it was, apart from the reason.
func (p topicPlan) refused(err error) topicPlan {
	p.create, p.grow, p.why = false, 0, ""
	p.after = p.before
	p.after.Message = err.Error()
	return p
}

func (l *loop) settingsOfNew(m statestore.Mirror, topic string, seen observation, d destinationSeen) (settingsPlan, error) {
	source, ok := seen.settings[topic]
	if !ok {
		return settingsPlan{}, fmt.Errorf("create topic %s: settings of the source's are not known: %w", topic, orUnknown(seen.settingsErr[topic]))
	}
	return planSettings(settingsInput{source: source, replicas: int(max(0, m.ReplicationFactor)), exclude: m.TopicPropertiesExclude, known: d.known}), nil
}

func orUnknown(err error) error {
	if err == nil {
		return mirror.Errorf(mirror.Retriable, "not read yet")
	}
	return err
}

// createWithout creates topics; one that is refused for a setting is tried again without the settings that the broker's
// reason names: a setting is never a reason not to mirror a topic (SPEC §8.8).
func (l *loop) createWithout(ctx context.Context, specs []kafka.TopicSpec) []kafka.CreatedTopic {
	results := l.deps.Destination.CreateTopics(ctx, specs)
	for i, r := range results {
		if r.Err == nil || !kafka.InvalidConfig(r.Err) {
			continue
		}
		blamed := blamedKeys(specs[i].Configs, r.Err.Error())
		if len(blamed) == 0 {
			continue
		}
		for _, key := range blamed {
			delete(specs[i].Configs, key)
		}
		l.speaker.say(ctx, slog.LevelWarn, "settings "+specs[i].Name, "settings left out", r.Err.Error(), mirror.KeyTopic, specs[i].Name,
			"keys", blamed, mirror.KeyErr, r.Err)
		results[i] = l.deps.Destination.CreateTopics(ctx, specs[i:i+1])[0]
	}
	return results
}

// blamedKeys lists the settings that a broker's reason names, apart from those without which a copy would not be one.
func blamedKeys(settings map[string]string, reason string) (keys []string) {
	for key := range settings {
		if _, must := forced[key]; !must && key != keyCleanupPolicy && strings.Contains(reason, key) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// grow adds partitions at the destination; only then does the record say so.
func (l *loop) grow(ctx context.Context, plans []topicPlan) {
	totals := map[string]int32{}
	for _, p := range plans {
		if p.grow > 0 {
			totals[p.after.Name] = p.grow
		}
	}
	if len(totals) == 0 {
		return
	}
	failed := l.deps.Destination.CreatePartitions(ctx, totals)
	for i, p := range plans {
		if err := failed[p.after.Name]; p.grow > 0 && err != nil {
			err = fmt.Errorf("destination: %w", err)
			plans[i] = p.refused(err)
			l.fail(StepPartitions, err)
		}
	}
}

// record writes the records of topics as they are now, all at once.
func (l *loop) record(ctx context.Context, plans []topicPlan) {
	var recs []statestore.Record
	for _, p := range plans {
		now, ok := l.deps.View.Topic(l.name, p.before.Name)
		if !ok {
			now = p.before
		}
		merged, ok := mergeTopic(now, p.before, p.after)
		switch {
		case !ok || merged == now && p.why != "topic discovered":
		case merged.Wish != now.Wish:
			recs = append(recs, statestore.Rewish{Topic: merged, From: now})
		default:
			recs = append(recs, merged)
		}
	}
	if err := l.put(ctx, recs...); err != nil {
		l.fail(StepTopics, err)
		return
	}
	l.tellTopics(ctx, plans)
}
