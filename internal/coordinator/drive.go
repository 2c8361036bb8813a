package coordinator

import (
	"errors"
	"log/slog"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// advance goes on with one shard: one append at most, of all that is decided by now. While it is under way nothing else is
// decided, for the view does not show it yet.
func (r *runner) advance(s *shard, now time.Time) {
	switch {
	case s.busy || now.Before(s.again):
	case s.phase == claiming:
		r.append(s, r.claimRecords(s, now), func(err error) {
			if r.written(s, err) {
				r.claimed(s)
			}
		})
	case s.phase == releasing:
		r.advanceRelease(s, now)
	case s.phase == driving:
		r.drive(s, now)
	}
}

// drive decides about all partitions of a shard and the mirror-level work that belongs to it.
func (r *runner) drive(s *shard, now time.Time) {
	records, after := r.mirrorLevel(s, now)
	records = append(records, r.reportRecords(s, now)...)
	for _, t := range s.parts {
		f, ok := r.facts(t, now)
		if !ok {
			continue
		}
		if p := t.proposal; p != nil {
			records, after = r.propose(s, f, p, records, after)
			continue
		}
		step := f.step()
		if len(step) > 0 && t.event.what == settled {
			t.event = happening{}
		}
		records = append(records, step...)
		t.leaving = len(step) > 0 && moves(step[0], t.epoch)
		if len(step) == 0 {
			r.want(s, t, f, now)
		}
	}
	if len(records) == 0 {
		for _, f := range after {
			f(nil)
		}
		return
	}
	r.append(s, records, func(err error) {
		if !r.written(s, err) {
			s.rows, r.moved = nil, -1 // they are reported again
		}
	}, after...)
}

// moves reports whether a record is a transition from a state epoch.
func moves(rec statestore.Record, epoch int32) bool {
	s, ok := rec.(statestore.PartitionState)
	return ok && s.StateEpoch != epoch
}

// written takes in what became of an append, and reports whether it is committed. A refusal by the group is no reason to
// stop by itself: it may be about the generation before a rebalance that keeps the shard. The lease and the group's
// callbacks say when it is over; until then the shard is tried again.
func (r *runner) written(s *shard, err error) bool {
	if err == nil {
		s.fails = 0
		return true
	}
	s.fails++
	s.again = time.Now().Add(min(appendPause<<min(s.fails, 5), time.Second))
	r.log.Log(r.ctx, failureLevel(s.fails), "state could not be written, trying again", mirror.KeyShard, s.index,
		mirror.KeyAttempt, s.fails, mirror.KeyErr, err)
	if s.phase == driving && mirror.KindOf(err) == mirror.Fenced {
		r.later(s) // load and claim again, should it still be ours
	}
	return false
}

// cause is why a partition is to be FAILED.
func (p *proposal) cause() error {
	if p.err != nil {
		return p.err
	}
	return errOnRequest
}

var errOnRequest = errors.New("set to FAILED on request")

// failureLevel lets a first failure pass silently: a rebalance is enough for one. What goes on failing is told ever more
// rarely.
func failureLevel(fails int) slog.Level {
	if fails < 4 || fails&(fails-1) != 0 {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

const appendPause = 50 * time.Millisecond

// propose serves a state that was asked for through the door.
func (r *runner) propose(s *shard, f facts, p *proposal, records []statestore.Record, after []func(error)) ([]statestore.Record, []func(error)) {
	t := s.parts[f.state.Partition]
	t.proposal = nil
	if why := illegal(f.state.State, p.to); why != "" {
		p.done(mirror.CodeInvalidRequest, why, t.epoch)
		return records, after
	}
	next := f.enter(p.to)
	if p.to == mirror.Failed {
		next = f.fail(p.cause())
	}
	if p.position != nil && f.position == nil {
		next = append(next, statestore.LastMirrorEpoch{Partition: f.state.Partition, Position: *p.position})
	}
	epoch := f.state.StateEpoch + 1
	return append(records, next...), append(after, func(err error) {
		if err != nil {
			p.done(mirror.CodeNotCoordinator, err.Error(), t.epoch)
			return
		}
		p.done(mirror.CodeNone, "", epoch)
	})
}

// due is when the next retry or append of a shard is due; zero: none.
func (s *shard) due(now time.Time) (next time.Time) {
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if !s.busy && now.Before(s.again) {
		sooner(s.again)
	}
	if s.phase == releasing {
		sooner(s.limit)
	}
	if s.phase == driving && !s.busy {
		for _, t := range s.parts {
			if t.event.what == nothing {
				sooner(t.retryAt)
			}
			if now.Before(t.again) {
				sooner(t.again)
			}
		}
	}
	return next
}
