package mmm

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// Plan is what the next refresh of a mirror would change on the destination, and what a stop now would lose.
type Plan struct {
	Mirror      string        `json:"mirror"`
	Problems    []string      `json:"problems"` // why parts of it are not known, or the mirror is refused
	Changes     []Change      `json:"changes"`
	Loss        []Loss        `json:"loss"`   // partitions that a stop now would leave behind the source
	Groups      []GroupLoss   `json:"groups"` // committed offsets that a stop now would clamp or skip
	NotMirrored []NotMirrored `json:"notMirrored"`
}

// Change is one thing that the next refresh would do.
type Change struct {
	Step   Step   `json:"step"`
	Name   string `json:"name"` // of a topic, group or ACL
	Change string `json:"change"`
}

// Loss is what a stop now would lose of one partition. Records −1: not known.
type Loss struct {
	Topic            string  `json:"topic"`
	Partition        int32   `json:"partition"`
	Records          int64   `json:"records"`
	Seconds          float64 `json:"seconds"` // age of the oldest record not mirrored, as last reported
	OpenTransactions int     `json:"openTransactions"`
}

// GroupLoss is a committed offset that the destination would not have as the source has it.
type GroupLoss struct {
	Group             string `json:"group"`
	Topic             string `json:"topic"`
	Partition         int32  `json:"partition"`
	SourceOffset      int64  `json:"sourceOffset"`
	DestinationOffset int64  `json:"destinationOffset"`
	Status            string `json:"status"`
	Reason            string `json:"reason"`
}

// NotMirrored is something at the source that mirrord leaves to the operator.
type NotMirrored struct {
	What string `json:"what"`
	Name string `json:"name"`
	Run  string `json:"run"` // the command that brings it over
}

func emptyPlan(mirrorName string) Plan {
	return Plan{Mirror: mirrorName, Problems: []string{}, Changes: []Change{}, Loss: []Loss{}, Groups: []GroupLoss{}, NotMirrored: []NotMirrored{}}
}

// Preview makes the Plan of a mirror. It reads both clusters and changes nothing; an error means that one of them could
// not be read at all.
func Preview(ctx context.Context, cfg Config, src, dst *kafka.Cluster, view View, mirrorName string) (Plan, error) {
	p := emptyPlan(mirrorName)
	m, ok := view.Mirror(mirrorName)
	if !ok {
		return p, mirror.Errorf(mirror.Refused, "mirror %s is not defined", mirrorName)
	}
	destinationID, err := within(ctx, cfg.CallTimeout, dst.ID)
	if err != nil {
		return p, fmt.Errorf("ask the destination for its cluster id: %w", err)
	}
	l := newLoop(mirrorName, cfg, Deps{Destination: dst, View: view, Log: slog.New(slog.DiscardHandler)}, newMetrics(nil))
	seen := l.observer().source(ctx, src, destinationID, true)
	if seen.err != nil {
		return p, fmt.Errorf("look at the source: %w", seen.err)
	}
	if f := judgeCluster(m, seen.clusterID, destinationID).Finding; f.Message != "" {
		p.Problems = append(p.Problems, f.Message)
		return p, nil
	}
	d, err := l.observer().destination(ctx, dst, seen)
	if err != nil {
		return p, err
	}
	l.deps.Opposite = func(ctx context.Context, _ statestore.Mirror) (Opposite, error) { return ReadOpposite(ctx, dst, src) }
	l.circles = l.lookForCircles(ctx, m, seen.topics, d)
	v := preview{loop: l, mirror: m, seen: seen, destination: d, plan: &p}
	v.topics()
	v.configs(ctx)
	v.groups(ctx)
	v.acls()
	p.Loss = lossOf(ctx, dst, view, v.unpromoted(), func(tps []kafka.TP) map[kafka.TP]int64 { return highWatermarks(ctx, src, tps) })
	v.notMirrored(ctx, src)
	return p, nil
}

// preview fills a Plan from what was seen.
type preview struct {
	loop        *loop
	mirror      statestore.Mirror
	seen        observation
	destination destinationSeen
	plan        *Plan
}

func (v preview) change(s Step, name, format string, args ...any) {
	v.plan.Changes = append(v.plan.Changes, Change{s, name, fmt.Sprintf(format, args...)})
}

func (v preview) problem(err error) {
	if err != nil {
		v.plan.Problems = append(v.plan.Problems, err.Error())
	}
}

func (v preview) topics() {
	plans, notes := planTopics(v.loop.topicsInput(v.mirror, v.seen.topics, v.destination))
	for _, p := range plans {
		t := p.after
		switch {
		case t.Finding.Message != "" && t.Finding != p.before.Finding:
			v.change(StepTopics, t.Name, "fail: %s", t.Finding.Message)
		case t.Message != "" && t.Message != p.before.Message:
			v.change(StepTopics, t.Name, "wait: %s", t.Message)
		case p.create:
			v.change(StepTopics, t.Name, "create with %s", mirror.Count(t.Partitions, "partition"))
		case p.grow > 0:
			v.change(StepPartitions, t.Name, "grow to %s", mirror.Count(p.grow, "partition"))
		case p.why != "":
			v.change(StepTopics, t.Name, "%s", p.why)
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(notes)) {
		v.plan.Problems = append(v.plan.Problems, subject+": "+notes[subject])
	}
	for _, item := range selectionOf(v.mirror).unmatched(v.seen.topics) {
		v.plan.Problems = append(v.plan.Problems, item+" matches no topic of the source")
	}
}

func (v preview) configs(ctx context.Context) {
	for _, t := range v.loop.deps.View.Topics(v.loop.name) {
		if !followsSettings(t) || !v.destination.same(t) || !v.loop.circles.allows(t) || v.loop.standing(t) == turnedAway {
			continue
		}
		plan, ok := v.loop.planConfigs(ctx, v.mirror, t, v.seen, v.destination)
		if !ok {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(plan.set)) {
			v.change(StepConfigs, t.Name, "set %s=%s", key, plan.set[key])
		}
		for _, key := range plan.remove {
			v.change(StepConfigs, t.Name, "delete %s", key)
		}
	}
	for _, err := range v.loop.failures[StepConfigs] {
		v.problem(err)
	}
}

func (v preview) groups(ctx context.Context) {
	v.problem(v.seen.groups.listErr)
	now := v.loop.scope()
	_, plans, _, err := v.loop.planGroups(ctx, v.seen.groups, v.loop.withPaused(now))
	v.problem(err)
	for _, p := range plans {
		for _, tp := range slices.SortedFunc(maps.Keys(p.commit), compareTP) {
			if now.mode(tp.Topic, tp.Partition) != syncNot {
				v.change(groupStep(p.kind), p.name, "commit %d for %s", p.commit[tp].offset, tp)
			}
		}
		for _, tp := range p.remove {
			if now.mode(tp.Topic, tp.Partition) != syncNot {
				v.change(groupStep(p.kind), p.name, "delete the offset of %s", tp)
			}
		}
		for _, r := range p.rows {
			if r.Status != StatusSynced && r.Status != "" {
				v.plan.Groups = append(v.plan.Groups, GroupLoss{p.name, r.Topic, r.Partition, r.SourceOffset, r.DestinationOffset, r.Status, r.Reason})
			}
		}
	}
}

func groupStep(kind string) Step {
	if kind == kafka.ShareGroup {
		return StepShareGroups
	}
	return StepGroups
}

func (v preview) acls() {
	for side, err := range map[string]error{"source": v.seen.aclsErr, "destination": v.destination.aclsErr} {
		switch {
		case err == nil:
			continue
		case kafka.SecurityDisabled(err):
			v.plan.Problems = append(v.plan.Problems, "ACLs are not mirrored: "+missingAuthorizer(side))
		default:
			v.problem(err)
		}
		return
	}
	in := v.loop.aclInput(v.mirror)
	in.source, in.destination = v.seen.acls, v.destination.acls
	plan := planACLs(in)
	for _, a := range plan.create {
		v.change(StepACLs, a.ResourceName, "create: %s", a)
	}
	for _, a := range plan.delete {
		v.change(StepACLs, a.ResourceName, "delete: %s", a)
	}
	if plan.held > 0 {
		v.plan.Problems = append(v.plan.Problems, fmt.Sprintf("%d rights to write wait until their topics are STOPPED", plan.held))
	}
}
