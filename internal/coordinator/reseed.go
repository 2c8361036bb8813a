package coordinator

import (
	"context"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// reseed recreates topics for a command, one after another. Each is left alone once a later command is about it; from the
// commit on, that one waits instead.
func (r *runner) reseed(ctx context.Context, cmd statestore.SubmittedCommand, waits *slow, topics []string) lookup {
	found := lookup{refused: map[string]error{}, paths: map[string]string{}}
	for _, topic := range topics {
		path, err := r.recreate(ctx, cmd, waits, topic)
		if err != nil {
			found.refused[topic] = err
			continue
		}
		found.paths[topic] = path
	}
	return found
}

func (r *runner) recreate(ctx context.Context, cmd statestore.SubmittedCommand, waits *slow, topic string) (path string, err error) {
	working, recall := context.WithCancelCause(ctx)
	defer recall(nil)
	var begun statestore.Topic
	err = r.decided(ctx, cmd.Mirror, func(r *runner) ([]statestore.Record, error) {
		if err := r.recalled(cmd, topic); err != nil {
			return nil, err
		}
		begun, _ = r.view.Topic(cmd.Mirror, topic)
		waits.topic, waits.recall = topic, func() { recall(r.recalled(cmd, topic)) }
		return nil, nil
	})
	if err != nil {
		return "", err
	}
	path, err = r.deps.Reseed(working, cmd.Mirror, topic, func(ctx context.Context) error {
		return r.decided(ctx, cmd.Mirror, func(r *runner) ([]statestore.Record, error) { return r.commit(cmd, begun) })
	})
	if err != nil && working.Err() != nil {
		err = context.Cause(working)
	}
	r.decommit(ctx, cmd.Mirror, topic)
	return path, err
}

// recalled says that a later command is about a topic, too.
func (r *runner) recalled(cmd statestore.SubmittedCommand, topic string) error {
	if t, ok := r.view.Topic(cmd.Mirror, topic); ok && t.Recreating {
		return nil // the later one waits
	}
	o := overtaken{}
	for _, later := range r.overtaking(cmd) {
		o.by = append(o.by, later.Command)
	}
	if why := o.topic(topic); why != "" {
		return mirror.Errorf(mirror.Refused, "%s", why)
	}
	return nil
}

// commit is the point from which on a topic is deleted and created again: nobody has decided about it since the command
// began, and its partitions stand still. Recorded, it holds back what comes later, also after a takeover.
func (r *runner) commit(cmd statestore.SubmittedCommand, begun statestore.Topic) ([]statestore.Record, error) {
	if err := r.recalled(cmd, begun.Name); err != nil {
		return nil, err
	}
	t, ok := r.view.Topic(cmd.Mirror, begun.Name)
	if !ok || t.Wish != begun.Wish || t.Rearm != begun.Rearm || t.SourceID != begun.SourceID || t.DestinationID != begun.DestinationID {
		return nil, mirror.Errorf(mirror.Refused, "something was decided about topic %s since", begun.Name)
	}
	if t.Wish == mirror.Stopped {
		return nil, mirror.Errorf(mirror.Refused, "topic %s is stopped: what it holds is not mirrord's any more", t.Name).
			WithHint("start it, then recover it")
	}
	for index := range t.Partitions {
		s, recorded := r.view.Partition(mirror.Partition{Mirror: t.Mirror, TopicID: t.SourceID, Index: index})
		if recorded && s.State != mirror.Failed && s.State != mirror.Paused {
			return nil, mirror.Errorf(mirror.Retriable, "partition %d of topic %s is %s", index, t.Name, s.State)
		}
	}
	t.Recreating = true
	return []statestore.Record{t}, nil
}

// decommit lets go on what has waited for the end. Where it cannot be written any more, the command's next owner does it.
func (r *runner) decommit(ctx context.Context, mirrorName, topic string) {
	for ctx.Err() == nil {
		err := r.decided(ctx, mirrorName, func(r *runner) ([]statestore.Record, error) {
			t, ok := r.view.Topic(mirrorName, topic)
			if !ok || !t.Recreating {
				return nil, nil
			}
			t.Recreating = false
			return []statestore.Record{t}, nil
		})
		if err == nil || !sleep(ctx, time.Second) {
			return
		}
	}
}
