package mmm

import (
	"context"
	"strings"

	"mirrord/internal/kafka"
	"mirrord/internal/statestore"
)

// A topic that is only compacted is seeded under "delete" by whoever owns its partitions, and keeps that policy until no
// partition needs it any more, however long it takes (protocol R13). Which is so cannot be told from the policy alone,
// which somebody may have changed: the logs tell.

// spareSeeding leaves a cleanup policy alone that seeding needs. A topic that looks so for the first time is spared, and
// the next look at the source asks where its log begins.
func (l *loop) spareSeeding(ctx context.Context, t statestore.Topic, plan settingsPlan, seen observation, now topicSettings) {
	want, ok := plan.set[keyCleanupPolicy]
	if !ok || !onlySeeding(want, now.explicit[keyCleanupPolicy]) {
		delete(l.seeding, t.Name)
		return
	}
	l.seeding[t.Name] = true
	if source, asked := seen.starts[t.Name]; !asked || seeding(source, l.deps.Destination.Ranges(ctx, partitionsOf(t))) {
		delete(plan.set, keyCleanupPolicy)
	}
}

// onlySeeding reports whether the only difference of cleanup.policy is that a compacted topic deletes instead.
func onlySeeding(want, now string) bool {
	return compacts(want) && strings.Contains(now, "delete") && want != now
}

// seeding reports whether a partition has not come to the source's log start yet, or still holds the fillers below it.
// One that cannot be asked counts as such.
func seeding(source, destination map[kafka.TP]kafka.RangeResult) bool {
	for tp, s := range source {
		d, ok := destination[tp]
		if !ok || s.Err != nil || d.Err != nil || d.LogStart < s.LogStart && d.HighWatermark <= s.LogStart {
			return true
		}
	}
	return false
}

func partitionsOf(t statestore.Topic) (tps []kafka.TP) {
	for i := range t.Partitions {
		tps = append(tps, kafka.TP{Topic: t.Name, Partition: i, LeaderEpoch: -1})
	}
	return tps
}

// starts asks where the logs of topics begin at the source.
func (o observer) starts(ctx context.Context, src *kafka.Cluster, topics []string) map[string]map[kafka.TP]kafka.RangeResult {
	var tps []kafka.TP
	for _, name := range topics {
		if t, ok := o.view.Topic(o.name, name); ok {
			tps = append(tps, partitionsOf(t)...)
		}
	}
	if len(tps) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	all := map[string]map[kafka.TP]kafka.RangeResult{}
	for tp, r := range src.Ranges(ctx, tps) {
		if all[tp.Topic] == nil {
			all[tp.Topic] = map[kafka.TP]kafka.RangeResult{}
		}
		all[tp.Topic][tp] = r
	}
	return all
}
