package control

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"mirrord/internal/mirror"
	"mirrord/internal/mmm"
	"mirrord/internal/statestore"
)

// dryRun tells what a command would do, by what the state topic says now. Nothing is changed. A start is looked up at the
// source, as its owner would do it; where that cannot be asked from here, it is told.
func (o *Operator) dryRun(ctx context.Context, v *statestore.View, req Request) error {
	if req.Verb == mirror.VerbStart && req.Source != nil {
		found, err := o.resolve(ctx, v, req)
		if err == nil {
			return o.dryStart(v, req, found)
		}
		o.tell("the source was not asked, so only what the destination knows is said: %v", err)
	}
	var refused []string
	refuse := func(format string, args ...any) { refused = append(refused, fmt.Sprintf(format, args...)) }
	for _, item := range req.Topics {
		p, err := mirror.ParsePattern(item)
		if err != nil {
			refuse("%v", err)
			continue
		}
		matched := 0
		for _, t := range v.Topics(req.Mirror) {
			if !p.Match(t.Name) {
				continue
			}
			matched++
			if why := refusal(req.Command, t, failedPartitions(v, t)); why != "" {
				refuse("%s: %s", t.Name, why)
				continue
			}
			o.preview(v, req.Verb, t)
		}
		if matched == 0 {
			o.unmatched(v, req, p, refuse)
		}
	}
	if len(refused) > 0 {
		return &Failure{ExitFailed, refused}
	}
	return nil
}

// resolved is what the items of a start select at the source.
type resolved struct {
	topics  []string
	refused map[string]error // by item or topic
}

func (o *Operator) resolve(ctx context.Context, v *statestore.View, req Request) (found resolved, err error) {
	m, err := mirrorIn(v, req.Mirror)
	if err != nil {
		return found, err
	}
	src, err := req.Source(m.Definition)
	if err != nil {
		return found, err
	}
	defer src.Close()
	sides := mmm.Sides{Source: src, Destination: o.Destination, View: v, CallTimeout: 2 * connectTimeout}
	found.topics, found.refused, err = mmm.ResolveTopics(ctx, sides, m, req.Topics, req.Exclude)
	return found, err
}

// dryStart tells what becomes of the topics that a start has found.
func (o *Operator) dryStart(v *statestore.View, req Request, found resolved) error {
	var refused []string
	for _, item := range slices.Sorted(maps.Keys(found.refused)) {
		refused = append(refused, naming(item, found.refused[item].Error()))
	}
	for _, name := range found.topics {
		t, known := v.Topic(req.Mirror, name)
		if !known {
			o.say("%s: would be mirrored", name)
		} else if why := refusal(req.Command, t, failedPartitions(v, t)); why != "" {
			refused = append(refused, name+": "+why)
		} else {
			o.preview(v, req.Verb, t)
		}
	}
	for _, item := range req.Topics {
		p, err := mirror.ParsePattern(item)
		if err == nil && !p.Literal() && found.refused[item] == nil && !slices.ContainsFunc(found.topics, p.Match) {
			o.say("%s: no topic of the source matches yet; would be kept for discovery", p)
		}
	}
	if len(refused) > 0 {
		return &Failure{ExitFailed, refused}
	}
	return nil
}

func (o *Operator) unmatched(v *statestore.View, req Request, p mirror.Pattern, refuse func(string, ...any)) {
	owner, taken := v.TopicOwner(p.String())
	switch {
	case req.Verb != mirror.VerbStart && p.Literal():
		refuse("topic %s is not in mirror %s", p, req.Mirror)
	case req.Verb != mirror.VerbStart:
		refuse("no topic of mirror %s matches %s", req.Mirror, p)
	case taken:
		refuse("topic %s is in mirror %s", p, owner)
	case p.Literal():
		o.say("%s: would be mirrored, if the source has it", p)
	default:
		o.say("%s: would be resolved on the source", p)
	}
}

// refusal is why a command would be refused for a topic; empty: it would not.
func refusal(cmd mirror.Command, t statestore.Topic, failed int) string {
	switch verb := cmd.Verb; {
	case cmd.Drain && t.Wish == mirror.Paused:
		return "is paused, so its lag cannot fall: resume it, or stop it without --drain"
	case cmd.Drain && t.Wish != mirror.Stopped && t.Drain:
		return "is being drained already"
	case verb == mirror.VerbPause && t.Wish == mirror.Stopped:
		return "is STOPPED: only a topic that is mirrored is paused"
	case verb == mirror.VerbResume && t.Wish == mirror.Stopped:
		return "is STOPPED: start it"
	case verb == mirror.VerbStart && t.Wish == mirror.Paused:
		return "is paused: resume it"
	case verb == mirror.VerbRecover && failed == 0 && t.Finding.Message == "":
		return "nothing of it has FAILED"
	}
	return ""
}

func failedPartitions(v *statestore.View, t statestore.Topic) (n int) {
	for _, p := range partitionsOf(v, t) {
		if p.State == mirror.Failed {
			n++
		}
	}
	return n
}

func partitionsOf(v *statestore.View, t statestore.Topic) (states []statestore.PartitionState) {
	for i := range t.Partitions {
		if p, ok := v.Partition(mirror.Partition{Mirror: t.Mirror, TopicID: t.SourceID, Index: i}); ok {
			states = append(states, p)
		}
	}
	return states
}

// preview tells what would happen to one topic.
func (o *Operator) preview(v *statestore.View, verb mirror.Verb, t statestore.Topic) {
	g := goal{verb: verb}
	want, at, states := g.wish(t), 0, partitionsOf(v, t)
	lag, unknown := int64(0), 0
	for _, p := range states {
		if p.State == want {
			at++
		}
		row := PartitionRowOf(v, p)
		lag += max(0, row.Lag)
		if row.Lag < 0 && p.State != mirror.Stopped {
			unknown++
		}
	}
	text := fmt.Sprintf("%s: %s would become %s", t.Name, mirror.Count(len(states)-at, "partition"), want)
	if at == len(states) && t.Wish == want && at > 0 {
		text = fmt.Sprintf("%s: is %s already", t.Name, want)
	}
	if verb == mirror.VerbStop && lag > 0 {
		text += fmt.Sprintf("; %s not mirrored yet, as last reported", mirror.Count(lag, "record"))
	}
	if verb == mirror.VerbStop && unknown > 0 {
		text += "; the lag of " + mirror.Count(unknown, "partition") + " is not known"
	}
	o.say("%s", text)
}
