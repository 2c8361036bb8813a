package fetcher

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// chores are what the pool does at intervals, each in the background and once at a time.
type chores struct {
	pool                *Pool
	watch, idle, trim   chore
	restarted, forgetAt time.Time
}

type chore struct {
	busy atomic.Bool
	next time.Time
}

// run starts f if it is due.
func (c *chore) run(pool *Pool, now time.Time, every time.Duration, f func(context.Context)) {
	if now.Before(c.next) || !c.busy.CompareAndSwap(false, true) {
		return
	}
	c.next = now.Add(every)
	pool.workers.Go(func() {
		defer c.busy.Store(false)
		f(pool.ctx)
	})
}

func (c *chores) start(now time.Time) {
	pool := c.pool
	if now.Sub(c.restarted) >= 100*time.Millisecond {
		c.restarted = now
		pool.restart(now)
	}
	if now.Sub(c.forgetAt) >= time.Second {
		c.forgetAt = now
		pool.forgetGone()
	}
	c.trim.run(pool, now, trimInterval, func(ctx context.Context) {
		if due := pool.select_(func(p *part) bool { _, ok := p.trimDue(now); return ok }); len(due) > 0 {
			pool.trim(ctx, due)
		}
	})
	c.watch.run(pool, now, watchInterval, pool.watchStill)
	c.idle.run(pool, now, idleInterval, func(ctx context.Context) {
		pool.checkAll(ctx, pool.select_(func(p *part) bool { return p.idleSince(now) }))
	})
}

// restart starts partitions that waited for their last answers.
func (pool *Pool) restart(now time.Time) {
	for _, p := range pool.allParts() {
		p.mu.Lock()
		if p.startDue && p.drained() {
			p.start(now)
		}
		if p.pipe.phase == closed && p.seedTo >= 0 {
			p.rest(now)
		}
		p.mu.Unlock()
	}
}

func (pool *Pool) select_(ok func(*part) bool) (chosen []*part) {
	for _, p := range pool.allParts() {
		if ok(p) {
			chosen = append(chosen, p)
		}
	}
	return chosen
}

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

// watchStill reads both sides of the partitions that are not mirrored, so that their lag stays true.
func (pool *Pool) watchStill(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pool.cfg.RequestTimeout)
	defer cancel()
	bySource := map[*source][]*part{}
	for _, p := range pool.allParts() {
		p.mu.Lock()
		if p.pipe.phase == closed && p.target.State != mirror.Stopped && !p.gone {
			bySource[p.src] = append(bySource[p.src], p)
		}
		p.mu.Unlock()
	}
	for src, parts := range bySource {
		pool.watchDestination(ctx, parts)
		pool.watchSource(ctx, src, parts)
	}
}

func (pool *Pool) watchDestination(ctx context.Context, parts []*part) {
	names := map[kafka.TP]*part{}
	for _, p := range parts {
		p.mu.Lock()
		names[p.destTP(-1)] = p
		p.mu.Unlock()
	}
	for tp, end := range pool.deps.Destination.LogEnds(ctx, keys(names)) {
		p := names[tp]
		p.mu.Lock()
		if end.Err == nil && p.pipe.phase == closed {
			p.sawDest(-1, end.Offset)
		}
		p.mu.Unlock()
	}
}

func (pool *Pool) watchSource(ctx context.Context, src *source, parts []*part) {
	cluster, err := src.cluster()
	if err != nil {
		return
	}
	names := map[kafka.TP]*part{}
	for _, p := range parts {
		names[kafka.TP{Topic: p.topic, Partition: p.key.Index, LeaderEpoch: -1}] = p
	}
	for tp, r := range cluster.Ranges(ctx, keys(names)) {
		p := names[tp]
		p.mu.Lock()
		if r.Err == nil && p.pipe.phase == closed {
			p.sawSource(r.LogStart, r.HighWatermark, time.Now())
		}
		p.mu.Unlock()
	}
}

// lookAtTail reads a partition alone, twice: if the source tells of offsets that it cannot give, they are a hole.
func (pool *Pool) lookAtTail(ctx context.Context, p *part) {
	p.mu.Lock()
	tp, at, ok := p.sourceTP(-1), p.pipe.tail, p.pipe.phase == running && !p.tailing
	p.tailing = p.tailing || ok
	p.mu.Unlock()
	if !ok {
		return
	}
	pool.workers.Go(func() {
		bound := pool.emptyTail(ctx, p, tp, at)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tailing = false
		if p.pipe.phase != running || p.pipe.tail != at || p.thread == nil {
			return
		}
		if bound > at {
			p.push([]item{{kind: hole, reason: compacted, from: at, to: bound, maxTime: -1, epoch: -1}})
			p.offer()
		}
		p.thread.touch(p)
	})
}

// emptyTail gives the offset up to which nothing is left; at: there is something, or it is not certain.
func (pool *Pool) emptyTail(ctx context.Context, p *part, tp kafka.TP, at int64) (bound int64) {
	ctx, cancel := context.WithTimeout(ctx, pool.cfg.RequestTimeout)
	defer cancel()
	cluster, err := p.src.cluster()
	if err != nil {
		return at
	}
	opts := kafka.ReadOptions{MaxBytes: pool.cfg.PartitionMaxBytes}
	if !p.src.exact() {
		opts.Isolation = kafka.ReadCommitted
	}
	for i := range 2 {
		f, err := cluster.Read(ctx, tp, at, opts)
		if err != nil || !nothingAbove(f.Bytes, at) {
			return at
		}
		if end := p.src.bound(&f); i == 0 || end < bound {
			bound = end
		}
	}
	return max(bound, at)
}

// nothingAbove: an answer without a batch that reaches an offset.
func nothingAbove(b []byte, at int64) bool {
	for len(b) > 0 {
		batch, rest, err := recordbatch.Cut(b)
		if err != nil || batch.NextOffset() > at {
			return false
		}
		b = rest
	}
	return true
}

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }
