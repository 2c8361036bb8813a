package coordinator

import (
	"context"
	"fmt"
	"slices"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// phase is how far a shard is in hand.
type phase uint8

const (
	loading   phase = iota // being read to its end
	claiming               // the claim is being written
	driving                // its partitions are ours
	releasing              // its partitions drain, then the claim is given up
)

// shard is a shard in hand.
type shard struct {
	index  int32
	phase  phase
	ctx    context.Context // ends when the shard is dropped
	cancel context.CancelFunc
	claim  statestore.ShardClaim
	// quiet is until when it matters that a predecessor did not give up in order (protocol R16): longer than any request
	// of its lives.
	quiet    time.Time
	parts    map[mirror.Partition]*part
	order    []mirror.Partition // of parts, sorted
	enrolled int                // version of the index that parts are from

	busy   bool      // an append is under way
	fails  int       // appends that failed in a row
	again  time.Time // no append before
	items  []*item   // mirror-level work that waits for its append
	slow   map[[16]byte]*slow
	missed map[[16]byte][]mirror.TopicOutcome // refusals of drains that run, by command
	over   []func()                           // to be called once released

	rows      []statestore.ReportedPosition // the last report
	rowsDirty bool                          // and it is not written yet
	epochs    []statestore.SourceEpochs     // to be written with it
	sweep     time.Time                     // when to look next for records of no use
	swept     int                           // version of the index that was looked at
	limit     time.Time                     // releasing: give up without drain then
}

// reloadPause is the pause before a shard that could not be loaded or claimed is tried again.
const reloadPause = time.Second

// assigned, revoked, lost and confirmed are called by the group.
func (c *Coordinator) assigned(shards []int32) {
	c.post(func(r *runner) {
		for _, n := range shards {
			r.assigned[n] = true
		}
	})
}

func (c *Coordinator) revoked(shards []int32) {
	if len(shards) == 0 {
		return
	}
	done := make(chan struct{})
	if !c.post(func(r *runner) { r.revoke(shards, func() { close(done) }) }) {
		return
	}
	select {
	case <-done:
	case <-time.After(releaseTime): // the loop gives up by then too
	}
}

func (c *Coordinator) lost(shards []int32) {
	c.post(func(r *runner) {
		for _, n := range shards {
			delete(r.assigned, n)
			if s := r.shards[n]; s != nil {
				r.drop(s)
			}
		}
	})
}

func (c *Coordinator) confirmed() {
	if !c.leased.Load() {
		c.post(func(*runner) {})
	}
}

// takeUp begins with shards that are assigned and not in hand.
func (r *runner) takeUp(now time.Time) (began bool) {
	if !r.leased.Load() || r.ending {
		return false
	}
	for n := range r.assigned {
		if r.shards[n] == nil && !now.Before(r.notBefore[n]) {
			delete(r.notBefore, n)
			r.load(n)
			began = true
		}
	}
	return began
}

// load reads a shard to the end that it has now, after the assignment (protocol R15), and then claims it.
func (r *runner) load(n int32) {
	s := &shard{
		index: n, parts: map[mirror.Partition]*part{}, slow: map[[16]byte]*slow{},
		missed: map[[16]byte][]mirror.TopicOutcome{},
	}
	s.ctx, s.cancel = context.WithCancel(kafka.WithLease(r.ctx, r.Lease)) // loading may end a hanging transaction
	r.shards[n] = s
	r.started.Go(func() {
		err := r.deps.Store.WaitLoaded(s.ctx, n)
		r.box.post(func() {
			if r.shards[n] != s || s.phase != loading {
				return
			}
			if err != nil {
				r.log.Warn("shard could not be loaded", mirror.KeyShard, n, mirror.KeyErr, err)
				r.later(s)
				return
			}
			s.phase = claiming
		})
	})
}

// later drops a shard and takes it up again after a pause.
func (r *runner) later(s *shard) {
	r.drop(s)
	r.notBefore[s.index] = time.Now().Add(reloadPause)
}

// claimRecords claims a shard: from the commit on, appends of former owners are refused.
func (r *runner) claimRecords(s *shard, now time.Time) []statestore.Record {
	before, claimed := r.view.Claim(s.index)
	s.quiet = time.Time{}
	if claimed && !before.Released {
		s.quiet = now.Add(r.deps.Config.SessionTimeout + kafka.DefaultRequestTimeout + time.Minute)
	}
	s.claim = statestore.ShardClaim{
		ShardIndex: s.index, Number: before.Number + 1, Owner: r.deps.Name,
		TransactionalID: r.deps.Store.TransactionalID(), HTTP: r.deps.HTTP, AtMillis: now.UnixMilli(),
	}
	records := []statestore.Record{s.claim}
	if !claimed {
		records = append(records, r.firstRecords(s.index, now)...)
	}
	if s.index == 0 {
		records = append(records, r.identityRecords()...)
	}
	return records
}

// claimed begins to drive a shard.
func (r *runner) claimed(s *shard) {
	s.phase = driving
	s.enrolled, r.moved = -1, -1
	r.enroll(s)
	r.owns()
	r.claimedNow = append(r.claimedNow, s.index)
}

// revoke gives up shards that the group takes away in order; done is called once that is over.
func (r *runner) revoke(shards []int32, done func()) {
	for _, n := range shards {
		delete(r.assigned, n)
	}
	r.release(shards, done)
}

// release stops the partitions of shards, waits until the data path holds nothing of them and writes that the claims are
// given up.
func (r *runner) release(shards []int32, done func()) {
	left := 1
	one := func() {
		if left--; left == 0 {
			done()
		}
	}
	limit := time.Now().Add(releaseTime - time.Second) // the release itself has to be written too
	for _, n := range shards {
		s := r.shards[n]
		switch {
		case s == nil:
		case s.phase == driving || s.phase == releasing:
			left++
			s.phase, s.limit = releasing, limit
			s.over = append(s.over, one)
		default:
			r.drop(s)
		}
	}
	r.owns()
	one()
}

// advanceRelease writes the release once everything is drained.
func (r *runner) advanceRelease(s *shard, now time.Time) {
	if s.busy || now.Before(s.limit) && !r.allDrained(s) {
		return
	}
	released := s.claim
	released.Released, released.AtMillis = true, now.UnixMilli()
	r.append(s, []statestore.Record{released}, func(err error) {
		if err != nil {
			r.log.Warn("shard given up without a record of it", mirror.KeyShard, s.index, mirror.KeyErr, err)
		} else {
			r.releasedNow = append(r.releasedNow, s.index)
		}
		r.drop(s)
	})
}

func (r *runner) allDrained(s *shard) bool {
	for p, t := range s.parts {
		report := r.reports[p]
		if t.ran && r.known[p] && (!report.Drained || report.StateEpoch != t.epoch) {
			return false
		}
	}
	return true
}

// drop forgets a shard at once.
func (r *runner) drop(s *shard) {
	s.cancel()
	delete(r.shards, s.index)
	r.deps.Store.Disown(s.index)
	for _, i := range s.items {
		i.done(errEnded)
	}
	for p, t := range s.parts {
		t.abandon()
		delete(r.rows, p)
	}
	for _, f := range s.over {
		f()
	}
	r.owns()
}

// owns publishes which shards are ours.
func (r *runner) owns() {
	owned := map[int32]bool{}
	for n, s := range r.shards {
		if s.phase == driving {
			owned[n] = true
		}
	}
	r.setOwned(owned)
}

// logShards tells which shards came and went in this pass.
func (r *runner) logShards() {
	args := func(shards []int32) []any {
		slices.Sort(shards)
		return []any{mirror.KeyShard, fmt.Sprint(shards), mirror.KeyCount, len(shards)}
	}
	if len(r.claimedNow) > 0 {
		r.log.Info("shards claimed", args(r.claimedNow)...)
	}
	if len(r.releasedNow) > 0 {
		r.log.Info("shards released", args(r.releasedNow)...)
	}
	r.claimedNow, r.releasedNow = nil, nil
}
