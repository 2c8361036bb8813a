package fetcher

import (
	"context"
	"sync/atomic"
	"time"
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
		if due := pool.partsThat(func(p *part) bool { _, ok := p.trimDue(now); return ok }); len(due) > 0 {
			pool.trim(ctx, due)
		}
	})
	c.watch.run(pool, now, watchInterval, pool.watchStill)
	c.idle.run(pool, now, idleInterval, func(ctx context.Context) {
		pool.checkAll(ctx, pool.partsThat(func(p *part) bool { return p.idleSince(now) }))
	})
}

// restart starts partitions that waited for their last answers.
func (pool *Pool) restart(now time.Time) {
	for _, p := range pool.allParts() {
		p.mu.Lock()
		if p.startDue && p.startable() {
			p.start(now)
		}
		if p.pipe.phase == closed && p.seedTo >= 0 {
			p.rest(now)
		}
		p.mu.Unlock()
	}
}

func (pool *Pool) partsThat(ok func(*part) bool) (chosen []*part) {
	for _, p := range pool.allParts() {
		if ok(p) {
			chosen = append(chosen, p)
		}
	}
	return chosen
}
