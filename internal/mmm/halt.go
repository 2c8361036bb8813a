package mmm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

const (
	// haltTime bounds the wait until no partition of a topic is mirrored any more, and then until its logs rest.
	haltTime = 30 * time.Second
	// restTime is how long log ends have to stay where they are: what was sent before may still arrive.
	restTime = 2 * time.Second
)

// halting is the finding that takes all partitions of a topic out of the data path, whoever owns them. Its kind has them
// compared before they are mirrored again.
var halting = statestore.Finding{Kind: mirror.Diverged, Message: "halted by recover --reseed, which is about to recreate the topic"}

// halt lets the partitions that have not FAILED stand still: they are copied again anyway, and mirrord itself must not be the
// writer that comes between the export and the deletion.
func (s *reseed) halt(ctx context.Context) error {
	if s.topic.Wish != mirror.Mirroring {
		return nil // nothing is mirrored
	}
	_, s.moved = s.moving(func(p statestore.PartitionState) bool { return p.State == mirror.Failed })
	halted := s.topic
	halted.Finding = halting
	if err := s.m.deps.Put(ctx, s.mirror.Name, halted); err != nil {
		return fmt.Errorf("halt topic %s: %w", s.topic.Name, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, haltTime, errors.New("not in time"))
	defer cancel()
	for {
		changed := s.m.deps.View.Changed()
		p, moves := s.moving(still)
		if !moves {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("halt topic %s: partition %d is %s: %w", s.topic.Name, p.Index, p.State, context.Cause(ctx))
		case <-changed:
		}
	}
}

// still reports whether a partition has obeyed the halt: no retry takes it out of FAILED any more. One whose promotion failed
// is not mirrored either.
func still(p statestore.PartitionState) bool {
	return p.State == mirror.Failed && (p.ErrorMessage == halting.Message || p.Previous == mirror.Stopping)
}

// moving finds a partition of the topic that does not stand still.
func (s *reseed) moving(still func(statestore.PartitionState) bool) (p statestore.PartitionState, moves bool) {
	for _, p := range s.m.deps.View.Partitions(s.mirror.Name) {
		if p.Topic == s.topic.Name && p.TopicID == s.topic.SourceID && !still(p) {
			return p, true
		}
	}
	return p, false
}

// release undoes a halt after which nothing was recreated: the partitions are judged again, as recover has them.
func (s *reseed) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.m.cfg.CallTimeout)
	defer cancel()
	t, ok := s.m.deps.View.Topic(s.mirror.Name, s.topic.Name)
	if !ok || t.Finding != halting {
		return
	}
	t.Finding = s.topic.Finding
	if t.Finding == halting { // of an owner before
		t.Finding = statestore.Finding{}
	}
	if t.Finding.Message == "" && t.Wish == mirror.Mirroring {
		t.Rearm++
	}
	if err := s.m.deps.Put(ctx, s.mirror.Name, t); err != nil {
		s.m.deps.Log.Warn("topic stays halted, recover it", mirror.KeyMirror, s.mirror.Name, mirror.KeyTopic, t.Name, mirror.KeyErr, err)
	}
}

// rested reads the log ends, after a halt once they do not move any more.
func (s *reseed) rested(ctx context.Context) (map[int32]int64, error) {
	ends, err := s.ends(ctx)
	for deadline := time.Now().Add(haltTime); s.moved && err == nil; {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(restTime):
		}
		before := ends
		if ends, err = s.ends(ctx); err == nil && maps.Equal(before, ends) {
			break
		}
		if time.Now().After(deadline) {
			return nil, s.written()
		}
	}
	return ends, err
}

func (s *reseed) written() error {
	return mirror.Errorf(mirror.Retriable, "topic %s was written to while it was exported", s.topic.Name).
		WithHint("end its writers, then recover again")
}
