package mmm

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

const (
	defaultRetention = 7 * 24 * time.Hour
	keyRetention     = "offsets.retention.minutes"
)

// groups makes committed offsets follow the source's.
func (l *loop) groups(ctx context.Context, seen observation) {
	defer l.settle(ctx, StepGroups)
	defer l.settle(ctx, StepShareGroups)
	if seen.groups.byName == nil {
		return
	}
	if err := seen.groups.listErr; err != nil {
		l.fail(StepGroups, fmt.Errorf("source: %w", err))
	}
	if err := seen.groups.shareErr; err != nil {
		l.speaker.say(ctx, slog.LevelInfo, "share groups", "share groups not mirrored", err.Error(), mirror.KeyCause, "the source does not tell their offsets", mirror.KeyErr, err)
	}
	l.syncGroups(ctx, seen.groups)
}

// syncGroups commits at the destination what source says. It is also the last commit of a promotion, then with what was
// recorded as the source's last word.
func (l *loop) syncGroups(ctx context.Context, source groupsSeen) {
	cases, plans, here, err := l.planGroups(ctx, source, l.scope())
	if err != nil {
		l.fail(StepGroups, err)
		return
	}
	if len(cases) > 0 {
		l.applyGroups(ctx, cases, plans, here)
	}
}

// planGroups looks at the destination and decides about all groups. Which groups are active there has to be known.
func (l *loop) planGroups(ctx context.Context, source groupsSeen, of scope) (cases []groupCase, plans []groupPlan, here map[string]kafka.Group, err error) {
	cases = l.groupCases(source, of)
	if len(cases) == 0 {
		return nil, nil, nil, nil
	}
	listed, err := within(ctx, l.cfg.CallTimeout, l.deps.Destination.ListGroups)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("destination: %w", err)
	}
	here = map[string]kafka.Group{}
	for _, g := range listed {
		here[g.ID] = g
	}
	l.readDestination(ctx, cases, here)
	l.readBounds(ctx, cases, of)
	l.learnRetention(ctx)
	for i := range cases {
		cases[i].recommit = cmp.Or(l.retention, defaultRetention) / 4
		plans = append(plans, cases[i].plan())
	}
	return cases, plans, here, nil
}

// groupCases makes a case of every group that has or had an offset where it matters.
func (l *loop) groupCases(source groupsSeen, of scope) (cases []groupCase) {
	rows := map[string][]statestore.GroupRow{}
	kinds := map[string]string{}
	for _, g := range l.deps.View.Groups(l.name) {
		rows[g.Group], kinds[g.Group] = g.Rows, g.Type
	}
	all := maps.Clone(source.byName)
	m, _ := l.deps.View.Mirror(l.name)
	sel := groupSelectionOf(m)
	for name := range rows {
		if _, ok := all[name]; !ok && !sel.selects(name) {
			all[name] = groupSeen{kind: kinds[name]}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c := groupCase{
			name: name, source: all[name], rows: rows[name], mode: of.mode, vouched: source.vouched, now: time.Now(),
			excluded: !sel.selects(name),
		}
		if c.matters() {
			cases = append(cases, c)
		}
	}
	return cases
}

// matters reports whether a partition that is mirrored now is among what the group has or had.
func (c groupCase) matters() bool {
	for tp := range c.source.offsets {
		if c.mode(tp.Topic, tp.Partition) != syncNot {
			return true
		}
	}
	return slices.ContainsFunc(c.rows, func(r statestore.GroupRow) bool { return c.mode(r.Topic, r.Partition) != syncNot })
}

// readDestination fills in what the destination has of the groups.
func (l *loop) readDestination(ctx context.Context, cases []groupCase, here map[string]kafka.Group) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.CallTimeout)
	defer cancel()
	kinds := map[string]string{}
	for _, c := range cases {
		if c.excluded {
			continue
		}
		kinds[c.name] = c.source.kind
		if g, ok := here[c.name]; ok {
			kinds[c.name] = g.Type
		}
	}
	found := map[string]groupSeen{}
	_ = l.observer().offsets(ctx, l.deps.Destination, kinds, found) // is each share group's own error too
	for i, c := range cases {
		g := found[c.name]
		if listed, ok := here[c.name]; ok {
			g.kind, g.active = listed.Type, listed.Active()
		} else {
			g.kind = ""
		}
		cases[i].destination = g
	}
}

// readBounds reads the destination's logs after its committed offsets: a log end only grows, so what lies beyond it is
// wrong for certain.
func (l *loop) readBounds(ctx context.Context, cases []groupCase, of scope) {
	wanted := map[kafka.TopicPartition]bool{}
	for _, c := range cases {
		for tp := range c.source.offsets {
			wanted[tp] = wanted[tp] || of.mode(tp.Topic, tp.Partition) != syncNot
		}
		for _, r := range c.rows {
			tp := kafka.TopicPartition{Topic: r.Topic, Partition: r.Partition}
			wanted[tp] = wanted[tp] || of.mode(r.Topic, r.Partition) != syncNot
		}
	}
	var tps []kafka.TP
	for tp, ok := range wanted {
		if ok {
			tps = append(tps, kafka.TP{Topic: tp.Topic, Partition: tp.Partition, LeaderEpoch: -1})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, l.cfg.CallTimeout)
	defer cancel()
	all := map[kafka.TopicPartition]bounds{}
	for tp, r := range l.deps.Destination.Ranges(ctx, tps) {
		all[tp.Name()] = bounds{r.LogStart, of.end(tp.Name(), r.HighWatermark), r.Err}
	}
	for i := range cases {
		cases[i].bounds = all
	}
}

// learnRetention asks, until it was answered once, how long the destination keeps committed offsets.
func (l *loop) learnRetention(ctx context.Context) {
	if l.retention > 0 {
		return
	}
	brokers, err := within(ctx, l.cfg.CallTimeout, func(ctx context.Context) (map[int32]kafka.Configs, error) {
		return l.deps.Destination.BrokerConfigs(ctx, keyRetention)
	})
	if err != nil {
		return
	}
	l.retention = defaultRetention
	for _, cs := range brokers {
		if minutes, err := strconv.Atoi(cs.Entries[keyRetention].Value); err == nil && minutes > 0 {
			l.retention = min(l.retention, time.Duration(minutes)*time.Minute)
		}
	}
}
