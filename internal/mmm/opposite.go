package mmm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// Opposite is what the source's own state topic says about mirroring from our destination to it: a mirror that is at work,
// or, once the direction is turned round, how far it had come. The zero value knows of none.
type Opposite struct {
	view    View
	mirrors []string // those whose source is our destination
}

// ReadOpposite reads the source's state topic. That there is none, or none that may be read, means that nothing is known.
func ReadOpposite(ctx context.Context, destination, source *kafka.Cluster) (Opposite, error) {
	id, err := destination.ID(ctx)
	if err != nil {
		return Opposite{}, fmt.Errorf("ask the destination for its id: %w", err)
	}
	view, err := statestore.Load(ctx, source)
	if errors.Is(err, statestore.ErrNoState) || kafka.Authorization(err) {
		return Opposite{}, nil
	}
	if err != nil {
		return Opposite{}, fmt.Errorf("read the source's %s: %w", statestore.StateTopic, err)
	}
	return OppositeIn(view, id), nil
}

// OppositeIn is what a view of the source's state says about mirrors from the cluster with the given id.
func OppositeIn(view View, destinationID string) Opposite {
	o := Opposite{view: view}
	for _, m := range view.Mirrors() {
		if m.LearntClusterID == destinationID {
			o.mirrors = append(o.mirrors, m.Name)
		}
	}
	return o
}

// LastMirrored is the last position of a target that was mirrored from our destination to the source. Of topics that
// were made anew since, nothing is known.
func (o Opposite) LastMirrored(of mirror.Target) mirror.Position {
	last := mirror.NoPosition
	for _, name := range o.mirrors {
		t, ok := o.view.Topic(name, of.Topic)
		if !ok || t.SourceID != of.DestinationID || t.DestinationID != of.TopicID {
			continue
		}
		at, _ := o.view.LastMirror(mirror.Partition{Mirror: name, TopicID: t.SourceID, Index: of.Index})
		last = mirror.Later(last, at)
	}
	return last
}

// Loop is an error if the source still takes the topic from our destination: records would go in a circle.
func (o Opposite) Loop(topic string) error {
	for _, name := range o.mirrors {
		if t, ok := o.view.Topic(name, topic); ok && !promoted(t) && !o.dormant(t) {
			return mirror.Errorf(mirror.Loop, "topic %s would go in a circle: mirror %s on the source takes it from this cluster", topic, name).
				WithHint("stop it there first: mirrord stop --mirror " + name + " --topics " + topic)
		}
	}
	return nil
}

// Dormant reports whether a mirror on the source has the topic without being at work on it. It may begin at any moment, so
// an answer counts only if it was asked for after what it is to allow was on record: the other side does the same, and one
// of both sees the other.
func (o Opposite) Dormant(topic string) bool {
	return slices.ContainsFunc(o.mirrors, func(name string) bool {
		t, ok := o.view.Topic(name, topic)
		return ok && !promoted(t) && o.dormant(t)
	})
}

// dormant: the mirror has never settled on the topic, or was refused it for this very circle, and has set nothing on it
// that a stop would have to give back.
func (o Opposite) dormant(t statestore.Topic) bool {
	if settings, _ := o.view.Settings(t.Mirror, t.Name); len(settings.Owned) > 0 || !settings.Trial.IsZero() {
		return false
	}
	if t.DestinationID.IsZero() {
		return true
	}
	for i := range t.Partitions {
		p, ok := o.view.Partition(mirror.Partition{Mirror: t.Mirror, TopicID: t.SourceID, Index: i})
		if !ok && t.Finding.Kind == mirror.Loop {
			continue // it will fail for what was found
		}
		if !ok || p.State != mirror.Failed || p.Kind != mirror.Loop || p.Rearmed != t.Rearm {
			return false
		}
	}
	return t.Partitions > 0
}

// circles are the topics about to be begun that a mirror on the source takes from here, and those that could not be looked
// at for that. A destination topic that is there already is not touched before (SPEC §7).
type circles struct {
	found   map[string]error
	checked map[string]bool // looked for; nil: every topic counts as such
	err     error
}

// lookForCircles asks the source about the topics that this cycle would begin to mirror into a topic that is there.
func (l *loop) lookForCircles(ctx context.Context, m statestore.Mirror, source catalog, d destinationSeen) circles {
	c := circles{found: map[string]error{}, checked: map[string]bool{}}
	if l.deps.Opposite == nil {
		return circles{}
	}
	var begin []string
	for _, t := range l.deps.View.Topics(l.name) {
		_, here := d.topics[t.Name]
		_, there := source[t.Name]
		if here && there && d.asked[t.Name] && beginning(t) && l.standing(t) != turnedAway {
			begin = append(begin, t.Name)
		}
	}
	if len(begin) == 0 {
		return c
	}
	opposite, err := within(ctx, l.cfg.CallTimeout, func(ctx context.Context) (Opposite, error) { return l.deps.Opposite(ctx, m) })
	if err != nil {
		l.fail(StepTopics, err)
		c.err = err
		return c
	}
	for _, topic := range begin {
		c.checked[topic] = true
		if loop := opposite.Loop(topic); loop != nil {
			c.found[topic] = loop
		}
	}
	return c
}

// beginning reports whether a topic is wished to be mirrored and not ready for it yet.
func beginning(t statestore.Topic) bool {
	return t.Wish == mirror.Mirroring && t.Finding.Message == "" && (t.DestinationID.IsZero() || t.Unready)
}

// allows reports whether a topic's settings and access rules may be touched: it was begun before, or goes in no circle.
func (c circles) allows(t statestore.Topic) bool {
	return !t.Unready || c.checked == nil || c.checked[t.Name] && c.found[t.Name] == nil
}

// finding is what to fail a topic for; ok is false if that could not be looked at.
func (c circles) finding(topic string) (f statestore.Finding, ok bool) {
	if loop := c.found[topic]; loop != nil {
		return statestore.Finding{Kind: mirror.Loop, Message: loop.Error()}, true
	}
	return f, c.checked == nil || c.checked[topic]
}
