package fetcher

import (
	"context"
	"time"

	"mirrord/internal/kafka"
)

// idleSince reports whether nothing was written for an interval, so that a stranger's write would not be noticed
// (protocol R21).
func (p *part) idleSince(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pipe.phase == running && p.pipe.idle() && p.pipe.queue.len() == 0 && !p.checking && now.Sub(p.touched) >= idleInterval
}

// checkEnds reads the log ends of partitions that were idle before something is appended: a stranger's record is found
// before ours lands behind it (protocol R21). Each broker has its own turn.
func (pool *Pool) checkEnds(broker int32, parts []*part) {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	_, busy := pool.checks[broker]
	pool.checks[broker] = append(pool.checks[broker], parts...)
	if !busy {
		pool.workers.Go(func() { pool.runChecks(broker) })
	}
}

func (pool *Pool) runChecks(broker int32) {
	for {
		pool.mu.Lock()
		parts := pool.checks[broker]
		pool.checks[broker] = nil
		if len(parts) == 0 {
			delete(pool.checks, broker)
		}
		pool.mu.Unlock()
		if len(parts) == 0 {
			return
		}
		pool.checkAll(pool.ctx, parts)
	}
}

func (pool *Pool) checkAll(ctx context.Context, parts []*part) {
	if len(parts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pool.cfg.RequestTimeout)
	defer cancel()
	names := make(map[*part]kafka.TP, len(parts))
	tps := make([]kafka.TP, 0, len(parts))
	for _, p := range parts {
		p.mu.Lock()
		names[p] = p.destTP(-1)
		p.mu.Unlock()
		tps = append(tps, names[p])
	}
	ends := pool.deps.Destination.LogEnds(ctx, tps)
	for p, tp := range names {
		p.mu.Lock()
		p.checking = false
		s := p.checkedEnd(ends[tp], time.Now())
		p.mu.Unlock()
		if s != nil {
			s.poke()
		}
	}
}

// checkedEnd takes a log end that was read while nothing was in flight; p.mu is held.
func (p *part) checkedEnd(end kafka.OffsetResult, now time.Time) *sink {
	if p.pipe.phase != running || !p.pipe.idle() {
		return nil
	}
	if end.Err != nil || end.Offset != p.pipe.acked {
		p.askLook(now, cause{err: endError(end, p.pipe.acked)})
		return nil
	}
	p.touched = now
	return p.offer()
}
