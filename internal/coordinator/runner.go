package coordinator

import (
	"context"
	"slices"
	"sync"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// runner is the event loop. Everything in it belongs to the goroutine of run; others reach it by Coordinator.post.
type runner struct {
	*Coordinator
	ctx     context.Context // of all that the loop starts
	started sync.WaitGroup  // goroutines that the loop has started

	assigned  map[int32]bool   // shards that the group has given to this instance
	shards    map[int32]*shard // those of them that are in hand
	index     *index
	seen      *sightings
	wanted    []want                    // effects to begin in this pass
	batches   map[*batch]bool           // running effects
	lag       map[[2]string]int64       // of topics that drain, as last looked at
	lagAt     map[string]time.Time      // when that was begun, by mirror
	lags      map[string]bool           // mirrors whose lag is being looked at
	drainsNow bool                      // a topic drains
	targets   []mirror.Target           // as last given to the data path
	known     map[mirror.Partition]bool // of targets
	reports   map[mirror.Partition]mirror.PositionReport
	rows      map[mirror.Partition]statestore.ReportedPosition // as last reported

	notBefore map[int32]time.Time // shards that are not to be taken up before
	ending    bool

	claimedNow, releasedNow []int32         // in this pass, for the log
	viewed                  <-chan struct{} // closed when the view has changed since it was indexed
	version                 int64           // of the view, as indexed
	dueAt                   time.Time       // when the partitions are to be looked at though nothing happens
	young                   bool            // some partition has changed its state a moment ago
	pace                    time.Duration   // between looks at the data path
	polled                  time.Time       // when positions were last asked for
	reported                time.Time
	moved                   int64 // DataPath.Moved as of then; −1: all is to be reported again
	behind                  bool  // some partition was, as last asked: its lag grows older
	bound                   bool  // the destination was seen to belong to this group
	ended                   error // why this instance must not run any more
}

func newRunner(c *Coordinator) *runner {
	return &runner{
		Coordinator: c, assigned: map[int32]bool{}, shards: map[int32]*shard{}, index: newIndex(),
		notBefore: map[int32]time.Time{}, seen: newSightings(), batches: map[*batch]bool{}, lags: map[string]bool{},
		lag: map[[2]string]int64{}, lagAt: map[string]time.Time{},
		moved: -1, reports: map[mirror.Partition]mirror.PositionReport{}, rows: map[mirror.Partition]statestore.ReportedPosition{},
	}
}

const (
	// minPause keeps changes that come in a row in one pass.
	minPause = 5 * time.Millisecond
	// idlePause is the longest time without a look at everything.
	idlePause = 10 * time.Second
	// maxShare bounds the loop's share of a core: after a pass it rests for so many times its length.
	maxShare = 1
)

// run drives until the context ends, and then gives everything up in order.
func (r *runner) run(ctx context.Context) error {
	effects, cancel := context.WithCancel(context.WithoutCancel(ctx)) // effects may end their work while shards are released
	defer cancel()
	r.ctx = effects
	for ctx.Err() == nil && r.ended == nil {
		began := time.Now()
		r.pass(began)
		took := time.Since(began)
		if !r.rest(ctx, max(minPause, maxShare*took)) {
			break
		}
	}
	r.end()
	cancel()
	r.started.Wait()
	r.box.close()
	return r.ended
}

// rest waits for something to do, at least pause long; false: the context ended.
func (r *runner) rest(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(r.untilNext(time.Now()))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-r.box.wake:
	case <-r.viewed:
	case <-timer.C:
	}
	quiet := time.NewTimer(pause)
	defer quiet.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-quiet.C:
		return true
	}
}

// pass looks at everything once and starts whatever is to be done. It never waits. Where nothing has happened and nothing
// is due, the partitions are not looked at: thousands that are level cost nothing.
func (r *runner) pass(now time.Time) {
	stirred := r.box.drain()
	stirred = r.look() || stirred
	stirred = r.watchLease() || stirred
	stirred = r.takeUp(now) || stirred
	stirred = r.poll(now) || stirred
	if !stirred && now.Before(r.dueAt) {
		return
	}
	r.drainsNow = false
	for _, s := range r.shards {
		r.advance(s, now)
	}
	r.launch()
	r.reconcile()
	r.publish(now)
	r.logShards()
	r.dueAt = r.nextDue(now)
}

// look brings the index up to date with the view, and reports whether it had to.
func (r *runner) look() bool {
	r.viewed = r.view.Changed() // first: what changes from here on wakes the loop again
	version := r.view.Version()
	if version == r.version {
		return false
	}
	r.version = version
	before := sortedKeys(r.index.mirrors)
	r.index.update(r.view)
	if !slices.Equal(before, sortedKeys(r.index.mirrors)) {
		r.owns() // owned mirrors are those of owned shards
	}
	r.tell(r.seen.update(r.view, r.index))
	r.checkIdentity()
	for _, s := range r.shards {
		r.enroll(s)
	}
	return true
}

// watchLease drops everything at once when the lease is over, and picks it up again when it is confirmed before the group
// took the shards away.
func (r *runner) watchLease() (changed bool) {
	leased := r.lease.check() == nil
	was := r.leased.Swap(leased)
	if was && !leased {
		r.log.Warn("lease lost, stopped all work", mirror.KeyGroup, r.deps.Config.GroupID)
		for _, s := range r.shards {
			r.drop(s)
		}
		r.reconcile()
		r.deps.LeaseLost()
	}
	return was != leased
}

// untilNext is how long nothing is due. Draining partitions are looked at often: failover waits for them.
func (r *runner) untilNext(now time.Time) time.Duration {
	next := r.dueAt
	if len(r.shards) > 0 {
		next = earliest(next, r.polled.Add(r.pace))
		next = earliest(next, now.Add(r.lease.left()))
	}
	return max(0, next.Sub(now))
}

// nextDue is when the partitions have to be looked at though nothing happens.
func (r *runner) nextDue(now time.Time) time.Time {
	next := now.Add(idlePause)
	if r.drainsNow {
		next = now.Add(lagPause / 2)
	}
	for _, s := range r.shards {
		next = earliest(next, s.due(now))
		if s.phase == driving && s.swept != r.index.version {
			next = earliest(next, s.sweep.Add(sweepPause-sweepTime))
		}
	}
	for n, at := range r.notBefore {
		if r.assigned[n] {
			next = earliest(next, at)
		}
	}
	return next
}

func earliest(a, b time.Time) time.Time {
	if b.IsZero() || a.Before(b) {
		return a
	}
	return b
}

// end gives up all shards in order, bounded.
func (r *runner) end() {
	r.ending = true
	deadline := time.Now().Add(releaseTime)
	var releasing []int32
	for n := range r.shards {
		releasing = append(releasing, n)
	}
	done := make(chan struct{})
	r.release(releasing, func() { close(done) })
	for {
		r.pass(time.Now())
		select {
		case <-done:
			return
		default:
		}
		if !time.Now().Before(deadline) || r.lease.check() != nil {
			for _, s := range r.shards {
				r.drop(s)
			}
			r.reconcile()
			return
		}
		select {
		case <-r.box.wake:
		case <-time.After(pollDraining):
		}
	}
}

// append writes records of a shard on a goroutine of its own. Until done is called nothing else is decided about the
// shard. done is not called once the shard was dropped; after is, whatever happens.
func (r *runner) append(s *shard, records []statestore.Record, done func(error), after ...func(error)) {
	s.busy = true
	r.started.Go(func() {
		err := r.deps.Store.Append(s.ctx, s.index, records...)
		r.box.post(func() {
			if r.shards[s.index] == s {
				s.busy = false
				done(err)
			}
			for _, f := range after {
				f(err)
			}
		})
	})
}

// reconcile gives the data path the full set if it differs from the last one.
func (r *runner) reconcile() {
	var targets []mirror.Target
	for _, s := range r.shards {
		targets = r.targetsOf(s, targets)
	}
	slices.SortFunc(targets, compareTargets)
	if slices.Equal(targets, r.targets) {
		return
	}
	r.targets, r.known = targets, make(map[mirror.Partition]bool, len(targets))
	for _, t := range targets {
		r.known[t.Partition] = true
	}
	r.deps.DataPath.Reconcile(slices.Clone(targets))
}
