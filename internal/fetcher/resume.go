package fetcher

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// looking is one look at the destination and the source for many partitions of one mirror at once.
type looking struct {
	pool  *Pool
	src   *source
	parts []*part
	turns map[*part]int // the look is void once a part's turn is another one

	source *kafka.Cluster
	at     map[*part]kafka.ResumePoint
	ranges map[*part]kafka.RangeResult
}

// look reads where each partition may go on (protocol R3, R6) and lets it go on.
func (pool *Pool) look(ctx context.Context, src *source, parts []*part) {
	defer pool.poke()
	l := &looking{pool: pool, src: src, turns: make(map[*part]int, len(parts))}
	var still []*part
	for _, p := range parts {
		p.mu.Lock()
		l.turns[p] = p.turn
		if p.pipe.phase == closed {
			still = append(still, p)
		} else {
			l.parts = append(l.parts, p)
		}
		p.mu.Unlock()
	}
	pool.lookAtStill(ctx, still)
	if len(l.parts) == 0 {
		return
	}
	if err := l.read(ctx); err != nil {
		l.each(func(p *part, now time.Time) { p.lookAgain(now, err) })
		return
	}
	var compare []*part
	for _, p := range l.parts {
		large := l.askedTooLarge(ctx, p)
		unseeded, unknown := l.unseeded(ctx, p)
		unready := cmp.Or(unknown, l.readyToSeed(ctx, p, unseeded))
		p.mu.Lock()
		now := time.Now()
		switch {
		case l.turns[p] != p.turn: // stopped, and perhaps started again, meanwhile
		case unready != nil:
			p.look.under = false
			p.lookAgain(now, unready)
		case l.decide(p, now, large, unseeded):
			compare = append(compare, p)
		}
		p.mu.Unlock()
	}
	l.compare(ctx, compare)
}

// each ends the look for all partitions.
func (l *looking) each(do func(*part, time.Time)) {
	now := time.Now()
	for _, p := range l.parts {
		p.mu.Lock()
		if l.turns[p] == p.turn {
			p.look.under = false
			do(p, now)
		}
		p.mu.Unlock()
	}
}

// decide ends a partition's look, unless both logs have to be compared first: then it says true. p.mu is held.
func (l *looking) decide(p *part, now time.Time, large error, unseeded bool) (compare bool) {
	at, r := l.at[p], l.ranges[p]
	p.look.under = false
	switch {
	case at.Err != nil:
		p.destinationFailed(now, at.Err)
		return false
	case large != nil:
		p.fail(large)
		return false
	case r.Err != nil:
		p.sourceFailed(now, r.Err)
		return false
	case !p.quiet(now, at.LogEnd), !p.succeeded(now, at):
		return false
	}
	p.sawSource(r.LogStart, r.HighWatermark, now)
	p.sawDest(at.LogStart, at.LogEnd)
	written := at.LogStart < at.LogEnd && (p.look.entry || at.LogEnd > p.pipe.sent) // by a stranger perhaps
	switch {
	case unseeded && (at.LogEnd < r.LogStart || at.LogEnd == r.LogStart && at.LogStart < at.LogEnd):
		p.seed(now, at, r.LogStart)
		return false
	case at.LogEnd < r.LogStart && !written:
		p.overtaken(now, at, r.LogStart)
		return false
	}
	switch {
	case at.LogEnd < p.pipe.acked && !p.look.entry:
		l.pool.log.Error("destination log end went back", p.attrs(mirror.KeyFrom, p.pipe.acked, mirror.KeyTo, at.LogEnd)...)
	case p.look.entry, p.look.cause.source, at.LogEnd > p.pipe.sent, at.LogEnd > r.HighWatermark:
	default:
		p.goOn(now, at)
		return false
	}
	if at.LogStart == at.LogEnd && at.LogEnd <= r.HighWatermark { // nothing to compare
		p.goOn(now, at)
		return false
	}
	p.look.under = true
	return true
}

// destinationFailed: the destination could not be read; p.mu is held.
func (p *part) destinationFailed(now time.Time, err error) {
	if kafka.UnknownTopic(err) {
		if !p.look.since.IsZero() && now.Sub(p.look.since) > maxBackoff {
			p.fail(mirror.Errorf(mirror.DestinationGone, "the destination topic was deleted or recreated by somebody else: %w", err).
				WithHint("recover the topic to have it created and copied again"))
			return
		}
	}
	p.lookAgain(now, fmt.Errorf("destination: %w", err))
}

// sourceFailed: the source could not be read; p.mu is held. A topic that is gone is the metadata manager's finding.
func (p *part) sourceFailed(now time.Time, err error) {
	if kafka.UnknownTopic(err) || mirror.KindOf(err) == mirror.SourceGone {
		p.look.since = time.Time{}
	}
	p.lookAgain(now, fmt.Errorf("source: %w", err))
}

// quiet waits, after doubt about something that no sequence protects, until the log end has stood still (protocol R11).
func (p *part) quiet(now time.Time, end int64) bool {
	return !p.look.cause.still || p.stoodStill(now, end)
}

// stoodStill reports whether the log end has not moved for long enough that nothing more arrives; if not, another look
// is due.
func (p *part) stoodStill(now time.Time, end int64) bool {
	if p.look.quietSince.IsZero() || p.look.quietEnd != end {
		p.look.quietEnd, p.look.quietSince = end, now
	}
	if left := quiesce - now.Sub(p.look.quietSince); left > 0 {
		p.lookAt(now.Add(min(left, time.Second)))
		return false
	}
	return true
}

// succeeded waits out a predecessor whose writes the broker could not tell from ours (protocol R16).
func (p *part) succeeded(now time.Time, at kafka.ResumePoint) bool {
	if !p.look.entry || !p.target.PredecessorAlive || at.LogEnd == at.LogStart {
		return true
	}
	_, known, _ := p.identity(at.Producers)
	if p.plan.exact { // transactions go under their own ids
		others, _ := counters(at.Producers)
		known = known || len(others) > 0
	}
	if known || !now.Before(p.look.wait) {
		return true
	}
	p.lookAt(p.look.wait)
	return false
}

// goOn resumes the pipeline at the destination's log end; p.mu is held.
func (p *part) goOn(now time.Time, at kafka.ResumePoint) {
	pl := p.place(at)
	p.src.pool.log.Debug("partition goes on", p.attrs(mirror.KeyOffset, at.LogEnd, mirror.KeyBroker, at.Broker, mirror.KeyCause, p.look.cause.err)...)
	p.lastEpoch = -1
	if at.LogEnd == p.pipe.acked && !p.look.cause.source {
		p.lastEpoch = int32(p.numbers.epoch.Load())
	}
	if at.LogEnd > p.pipe.acked {
		p.look.tries = 0
	}
	p.pipe.resume(pl)
	p.pipe.joinTo = p.joinTo
	p.destEpoch, p.destID = at.LeaderEpoch, p.target.DestinationID
	p.sourceMoved(p.sourceEpoch)
	p.lanes = p.src.pool.lanes(at.Broker)
	p.touched = now
	p.sawDest(at.LogStart, at.LogEnd)
	p.look.cause, p.look.entry, p.look.since, p.look.quietSince = cause{}, false, time.Time{}, time.Time{}
	p.seedTo, p.unsure, p.mirrored = -1, false, true
	p.fetching, p.ahead = true, nil
	p.checking = false
	if p.thread != nil {
		p.thread.touch(p)
		return
	}
	p.routeAt.Store(now.UnixNano())
	p.src.route(p)
}
