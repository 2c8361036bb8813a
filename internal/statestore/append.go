package statestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mirrord/internal/mirror"
)

// appending is one Append on its way through the writer.
type appending struct {
	ctx      context.Context
	shard    int32
	records  []Record
	claims   bool // holds a claim of the shard
	releases bool
	done     chan appended // buffered, answered once
}

// appended is where an append ended up.
type appended struct {
	topicID mirror.TopicID
	next    int64 // the offset behind its last record
	err     error
}

var errStoreEnded = errors.New("the state store has ended")

// Append writes records of one shard in one transaction, joined with other waiting appends, and returns when they are
// committed and the view shows them. Kind Fenced: this instance does not own the shard, or not any more; nothing was
// written. A shard is owned from the commit of its ShardClaim until a claim with Released, or Disown. On an error of the
// context the outcome is open; repeating is harmless. No records: the shard is only written again if its topic was
// lost.
func (s *Store) Append(ctx context.Context, shard int32, records ...Record) error {
	a := &appending{ctx: ctx, shard: shard, records: records}
	n := s.view.Shards()
	if n == 0 {
		return mirror.Errorf(mirror.Unreachable, "append to shard %d: the state topic was not found yet", shard)
	}
	for _, r := range records {
		if at := r.Shard(n); at != shard {
			return fmt.Errorf("append to shard %d: a record belongs to shard %d", shard, at)
		}
		if claim, ok := r.(ShardClaim); ok {
			a.claims, a.releases = !claim.Released, claim.Released
		}
	}
	for {
		got, err := s.pass(a)
		if err == nil {
			err = got.err
		}
		if err != nil {
			return fmt.Errorf("append to shard %d: %w", shard, err)
		}
		switch seen, err := s.awaitAppended(ctx, shard, got); {
		case err != nil:
			return fmt.Errorf("append to shard %d: %w", shard, err)
		case seen:
			return nil
		}
	}
}

// pass hands an append to the writer and waits for its answer.
func (s *Store) pass(a *appending) (appended, error) {
	a.done = make(chan appended, 1)
	select {
	case s.appends <- a:
	case <-s.ended:
		return appended{}, errStoreEnded
	case <-a.ctx.Done():
		return appended{}, context.Cause(a.ctx)
	}
	select {
	case got := <-a.done:
		return got, nil
	case <-s.ended:
		return appended{}, errStoreEnded
	case <-a.ctx.Done():
		return appended{}, context.Cause(a.ctx)
	}
}

// awaitAppended waits until the view shows an append; false: its topic was deleted since, so it must be repeated.
func (s *Store) awaitAppended(ctx context.Context, shard int32, at appended) (seen bool, err error) {
	for {
		patience, cancel := context.WithTimeout(ctx, hangingPatience)
		seen, err = s.view.awaitAppended(patience, shard, at)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return seen, err
		}
		if err := s.endHanging(ctx, shard); err != nil {
			s.deps.Log.Debug("no hanging transaction could be ended", mirror.KeyShard, shard, mirror.KeyErr, err)
		}
	}
}

// hangingPatience is how long what is committed may remain unseen before a hanging transaction is looked for.
const hangingPatience = 10 * time.Second

func (v *View) awaitAppended(ctx context.Context, shard int32, at appended) (seen bool, err error) {
	err = v.wait(ctx, shard, func() bool {
		next, id := v.position(shard)
		seen = id == at.topicID
		return !seen || next >= at.next
	})
	return seen, err
}

// owns reports whether appends to a shard are allowed: it was claimed, or this append claims it.
func (s *Store) owns(a *appending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return a.claims || s.owned[a.shard]
}

// committed notes what a transaction did to the ownership of shards.
func (s *Store) committed(a *appending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.claims:
		s.owned[a.shard] = true
	case a.releases:
		delete(s.owned, a.shard)
	}
}
