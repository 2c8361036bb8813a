package control

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"mirrord/internal/compare"
	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/mmm"
	"mirrord/internal/statestore"
)

// OpenSource connects to the source of a mirror, with the secrets of this host.
type OpenSource func(mirror.Definition) (*kafka.Cluster, error)

// VerifyOptions say what to compare.
type VerifyOptions struct {
	Mirror string
	Topics []string // items; empty: all
	Full   bool
	// MemoryLimit bounds what is held of the logs, in bytes; 0: the default.
	MemoryLimit int64
}

// Verify compares both sides of a mirror's topics record by record. Differences are a Failure.
func (o *Operator) Verify(ctx context.Context, opts VerifyOptions, open OpenSource) error {
	v, src, err := o.bothSides(ctx, opts.Mirror, open)
	if err != nil {
		return err
	}
	defer src.Close()
	topics, err := selectTopics(v, opts.Mirror, opts.Topics)
	if err != nil {
		return err
	}
	line := progressLine{operator: o}
	rows, err := compare.Verify(ctx, src, o.Destination, opts.Mirror, topics, compare.Options{
		Full: opts.Full, MemoryLimit: opts.MemoryLimit,
		Compacted: func(topic string) bool {
			s, _ := v.Settings(opts.Mirror, topic)
			return s.Compacted
		},
		LastMirror: func(topic string, partition int32) mirror.Position {
			return lastMirror(v, opts.Mirror, topic, partition)
		},
		Progress: func(p compare.Progress) {
			line.show("%d of %s, %s", p.Done, mirror.Count(p.Partitions, "partition"), mirror.Count(p.Records, "record"))
		},
	})
	line.end()
	if err != nil {
		return Unreachable("source", err)
	}
	return o.showVerified(rows)
}

// bothSides loads the state and opens the source of a mirror. Where only the source is out of reach, the view is there
// nevertheless.
func (o *Operator) bothSides(ctx context.Context, mirrorName string, open OpenSource) (*statestore.View, *kafka.Cluster, error) {
	v, err := o.loaded(ctx)
	if err != nil {
		return nil, nil, err
	}
	m, err := mirrorIn(v, mirrorName)
	if err != nil {
		return nil, nil, err
	}
	src, err := open(m.Definition)
	if err != nil {
		return v, nil, failure(ExitFailed, "%v", err)
	}
	connect, cancel := context.WithTimeout(ctx, 2*connectTimeout)
	defer cancel()
	id, err := src.ID(connect)
	if err != nil {
		err = Unreachable("source", err)
	} else if want := cmp.Or(m.SourceClusterID, m.LearntClusterID); id != "" && want != "" && id != want {
		err = failure(ExitFailed, "%v", mirror.OtherCluster(id, want))
	}
	if err != nil {
		src.Close()
		return v, nil, err
	}
	return v, src, nil
}

func selectTopics(v *statestore.View, mirrorName string, items []string) (topics []string, err error) {
	patterns, errs := mirror.ParsePatterns(items)
	if len(errs) > 0 {
		return nil, failure(ExitUsage, "%v", errs[0])
	}
	for _, t := range v.Topics(mirrorName) {
		if len(items) == 0 || patterns.Match(t.Name) {
			topics = append(topics, t.Name)
		}
	}
	for _, p := range patterns {
		if !slices.ContainsFunc(topics, p.Match) {
			return nil, failure(ExitFailed, "no topic of mirror %s matches %s", mirrorName, p)
		}
	}
	return topics, nil
}

// lastMirror is up to where a stopped partition was mirrored.
func lastMirror(v *statestore.View, mirrorName, topic string, partition int32) mirror.Position {
	t, ok := v.Topic(mirrorName, topic)
	if !ok {
		return mirror.NoPosition
	}
	p := mirror.Partition{Mirror: mirrorName, TopicID: t.SourceID, Index: partition}
	if s, ok := v.Partition(p); !ok || s.State != mirror.Stopped {
		return mirror.NoPosition
	}
	at, _ := v.LastMirror(p)
	return at
}

func (o *Operator) showVerified(rows []compare.Row) error {
	if rows == nil {
		rows = []compare.Row{}
	}
	var different []string
	for _, r := range rows {
		if !r.Equal {
			different = append(different, fmt.Sprintf("%s: %s", whose(r.Topic, r.Partition), cmp.Or(r.Detail, fmt.Sprintf("differs from offset %d on", r.FirstDifference))))
		}
	}
	if err := o.verifyTable(rows); err != nil {
		return err
	}
	if len(different) > 0 {
		return &Failure{ExitFailed, different}
	}
	return nil
}

func (o *Operator) verifyTable(rows []compare.Row) error {
	if o.JSON {
		return o.writeJSON(rows)
	}
	t := o.table("TOPIC", "PARTITION", "FROM", "TO", "RECORDS", "EQUAL", "FIRST DIFFERENCE", "DETAIL")
	for _, r := range rows {
		t.row(r.Topic, known(int64(r.Partition)), known(r.From), known(r.To), strconv.FormatInt(r.Records, 10), strconv.FormatBool(r.Equal),
			known(r.FirstDifference), r.Detail)
	}
	t.flush()
	return nil
}

// Plan shows what the next refresh of a mirror would change, and what a stop now would lose. Without the source it shows
// what is known of that, and fails nevertheless.
func (o *Operator) Plan(ctx context.Context, mirrorName string, cfg mmm.Config, open OpenSource) error {
	v, src, err := o.bothSides(ctx, mirrorName, open)
	if v == nil {
		return err
	}
	var p mmm.Plan
	if src != nil {
		defer src.Close()
		if p, err = mmm.Preview(ctx, cfg, src, o.Destination, v, mirrorName); err != nil {
			err = Unreachable("source", err)
		}
	}
	asked := err == nil
	if !asked {
		p = mmm.PreviewWithoutSource(ctx, o.Destination, v, mirrorName)
	}
	if o.JSON {
		return cmp.Or(o.writeJSON(p), err)
	}
	o.showPlan(p, asked)
	return err
}

func (o *Operator) showPlan(p mmm.Plan, asked bool) {
	for _, problem := range p.Problems {
		o.tell("%s", problem)
	}
	if asked {
		o.section("the next refresh would change on the destination", len(p.Changes))
	}
	t := o.table()
	for _, c := range p.Changes {
		t.row("  "+string(c.Step), c.Name, c.Change)
	}
	t.flush()
	title := "a stop now would lose"
	if !asked {
		title += ", as last reported"
	}
	o.section(title, len(p.Loss)+len(p.Groups))
	for _, l := range p.Loss {
		t.row("  "+whose(l.Topic, l.Partition), lossOf(l))
	}
	for _, g := range p.Groups {
		t.row(fmt.Sprintf("  group %s, %s", quoted(groupID(g.Group)), whose(g.Topic, g.Partition)), g.Status, g.Reason)
	}
	t.flush()
	if len(p.NotMirrored) > 0 {
		o.section("left to you", len(p.NotMirrored))
		for _, n := range p.NotMirrored {
			t.row("  "+n.What, n.Name, n.Run)
		}
		t.flush()
	}
}

// whose is a partition, or the topic as a whole where there is none.
func whose(topic string, partition int32) string {
	if partition < 0 {
		return topic
	}
	return fmt.Sprintf("%s-%d", topic, partition)
}

func lossOf(l mmm.Loss) string {
	text := "an unknown number of records"
	if l.Records >= 0 {
		text = fmt.Sprintf("%s, %.1f s", mirror.Count(l.Records, "record"), max(0, l.Seconds))
	}
	if l.OpenTransactions > 0 {
		text += ", " + mirror.Count(l.OpenTransactions, "open transaction")
	}
	return text
}

func (o *Operator) section(title string, items int) {
	if items == 0 {
		title += ": nothing"
	}
	o.say("%s", title)
}
