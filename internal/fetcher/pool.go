package fetcher

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mirrord/internal/compare"
	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// Deps is what the pool is given. Functions are called without locks held and may be nil where it says so.
type Deps struct {
	Destination *kafka.Cluster
	// Source gives the shared, self-healing cluster that a mirror reads from.
	Source func(*mirror.Resolved) (*kafka.Cluster, error)
	// Lease is asked immediately before each write leaves (protocol R16).
	Lease func() error
	// Failed is told once that a partition has failed; it stays so until a Reconcile with a higher StateEpoch.
	Failed func(mirror.Target, error)
	// Fencing is told that the source's leader epoch has come near the destination's (continuous mode); may be nil.
	Fencing func(t mirror.Target, sourceEpoch int32)
	// Tail compares the last records of both logs (protocol R7), in the order of the targets.
	Tail func(ctx context.Context, src, dst *kafka.Cluster, ts []mirror.Target) []compare.Alignment
	// TooLarge has the destination topic's limit looked at, and raised if it may be, for a batch of so many bytes; nil
	// means that it can be tried again. May be nil.
	TooLarge func(ctx context.Context, t mirror.Target, bytes int) error
	// Event tells what an operator may want to read back; may be nil.
	Event      func(mirror.Event)
	Log        *slog.Logger
	Registerer prometheus.Registerer // may be nil
}

// Pool mirrors the partitions it is given, and watches those that are not to be mirrored. Safe for concurrent use.
type Pool struct {
	cfg    Config
	deps   Deps
	log    *slog.Logger
	budget *budget
	fills  *fillers
	began  time.Time

	throttle throttle
	active   atomic.Int64 // partitions with something queued
	threads  atomic.Int64
	moved    atomic.Int64
	leaving  bool // some partition is gone and not forgotten; the loop's own
	metrics  *metrics
	policies policies
	memory   memory

	ctx     context.Context // of everything that Run starts; ends after the drain
	stop    context.CancelFunc
	ending  atomic.Bool
	workers sync.WaitGroup
	wake    chan struct{}

	mu      sync.Mutex // guards what follows; a leaf
	wanted  []mirror.Target
	fresh   bool // wanted has not been applied
	looks   []*part
	checks  map[int32][]*part // by destination broker, while that is going on: log ends to be read before an append
	events  []func()
	telling bool
	sinks   map[sinkKey]*sink

	setMu   sync.RWMutex // guards what follows
	parts   map[mirror.Partition]*part
	sources map[string]*source

	fillerMu    sync.Mutex // guards what follows
	fillerBatch recordbatch.Batch
	fillerMade  time.Time
}

type sinkKey struct {
	broker int32
	lane   int
}

// NewPool makes a pool; nothing happens before Run.
func NewPool(cfg Config, deps Deps) *Pool {
	pool := &Pool{
		cfg: cfg, deps: deps, log: deps.Log, budget: newBudget(cfg.MemoryLimit), began: time.Now(),
		wake: make(chan struct{}, 1), sinks: map[sinkKey]*sink{}, checks: map[int32][]*part{}, parts: map[mirror.Partition]*part{}, sources: map[string]*source{},
		policies: policies{before: map[string]string{}, using: map[string]map[int32]struct{}{}},
	}
	if pool.log == nil {
		pool.log = slog.New(slog.DiscardHandler)
	}
	if pool.deps.Lease == nil {
		pool.deps.Lease = func() error { return nil }
	}
	pool.fills = &fillers{pool: pool, lanes: map[fillLane][]*filling{}, busy: map[fillLane]bool{}, txns: map[int32]*emptyTxns{}}
	pool.throttle.set(cfg.Throttle)
	pool.ctx, pool.stop = context.WithCancel(context.Background())
	pool.metrics = newMetrics(pool, deps.Registerer)
	return pool
}

// SetLimits changes the memory limit and the throttle of all mirrors together.
func (pool *Pool) SetLimits(memory, throttle int64) {
	pool.budget.setLimit(memory)
	pool.throttle.set(throttle)
}

// Reconcile sets what is to be mirrored and watched: the full set. It never blocks.
func (pool *Pool) Reconcile(targets []mirror.Target) {
	pool.mu.Lock()
	pool.wanted, pool.fresh = targets, true
	pool.mu.Unlock()
	pool.poke()
}

// Reset ends the connections that data leaves by: what has not left never does (protocol R16). For a lease that was lost.
func (pool *Pool) Reset() {
	pool.mu.Lock()
	sinks := make([]*sink, 0, len(pool.sinks))
	for _, s := range pool.sinks {
		sinks = append(sinks, s)
	}
	pool.mu.Unlock()
	for _, s := range sinks {
		s.abort()
	}
}

// Run serves until ctx ends, then drains: what is in flight is answered, nothing new leaves. It takes 10 s at most.
func (pool *Pool) Run(ctx context.Context) error {
	defer pool.metrics.unregister()
	tick := time.NewTimer(0)
	defer tick.Stop()
	chores := chores{pool: pool}
	for {
		next := pool.turn(&chores)
		tick.Reset(next)
		select {
		case <-pool.wake:
		case <-tick.C:
		case <-ctx.Done():
			pool.drain()
			return nil
		}
	}
}

// turn does what is due and returns how long to rest.
func (pool *Pool) turn(c *chores) time.Duration {
	pool.mu.Lock()
	wanted, fresh := pool.wanted, pool.fresh
	pool.fresh = false
	pool.mu.Unlock()
	if fresh {
		pool.apply(wanted)
	}
	now := time.Now()
	next := time.Second
	soon := func(at time.Time) {
		if !at.IsZero() {
			next = min(next, max(at.Sub(now), time.Millisecond))
		}
	}
	for _, s := range pool.allSources() {
		soon(s.startRouting(pool.ctx, now))
	}
	soon(pool.startLooks(now))
	c.start(now)
	return next
}

func (pool *Pool) allSources() []*source {
	pool.setMu.RLock()
	defer pool.setMu.RUnlock()
	all := make([]*source, 0, len(pool.sources))
	for _, s := range pool.sources {
		all = append(all, s)
	}
	return all
}

func (pool *Pool) allParts() []*part {
	pool.setMu.RLock()
	defer pool.setMu.RUnlock()
	all := make([]*part, 0, len(pool.parts))
	for _, p := range pool.parts {
		all = append(all, p)
	}
	return all
}

func (pool *Pool) poke() {
	select {
	case pool.wake <- struct{}{}:
	default:
	}
}

func (pool *Pool) stopping() bool { return pool.ending.Load() }

// drain stops all partitions, waits for the answers that are due, and ends every goroutine.
func (pool *Pool) drain() {
	pool.ending.Store(true)
	parts := pool.allParts()
	for _, p := range parts {
		p.mu.Lock()
		p.halt()
		p.mu.Unlock()
	}
	deadline := time.Now().Add(drainLimit)
	for _, p := range parts {
		for !p.quietNow() && time.Now().Before(deadline) {
			<-time.After(5 * time.Millisecond)
		}
	}
	pool.stop()
	pool.mu.Lock()
	sinks := pool.sinks
	pool.sinks = nil
	pool.mu.Unlock()
	for _, s := range sinks {
		s.abort()
	}
	pool.workers.Wait()
}

func (p *part) quietNow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pipe.idle()
}

// listLook queues a partition that a look is due for; its lock is held.
func (pool *Pool) listLook(p *part) {
	pool.mu.Lock()
	pool.looks = append(pool.looks, p)
	pool.mu.Unlock()
	pool.poke()
}

// startLooks starts the looks that are due, apart by mirror and destination broker, so that a dead broker holds up nobody
// else. It returns when the next one is due (zero: none).
func (pool *Pool) startLooks(now time.Time) (next time.Time) {
	type group struct {
		src    *source
		broker int32
	}
	pool.mu.Lock()
	listed := pool.looks
	pool.looks = nil
	pool.mu.Unlock()
	due := map[group][]*part{}
	var rest []*part
	for _, p := range listed {
		p.mu.Lock()
		switch at := p.look.due; {
		case at.IsZero(): // not any more
			p.look.listed = false
		case at.After(now):
			rest = append(rest, p)
			if next.IsZero() || at.Before(next) {
				next = at
			}
		default:
			p.look.listed, p.look.under, p.look.due = false, true, time.Time{}
			g := group{src: p.src, broker: -1}
			if p.lanes[0] != nil {
				g.broker = p.lanes[0].broker
			}
			due[g] = append(due[g], p)
		}
		p.mu.Unlock()
	}
	pool.mu.Lock()
	pool.looks = append(pool.looks, rest...)
	pool.mu.Unlock()
	for g, parts := range due {
		for len(parts) > 0 {
			n := min(len(parts), 2000)
			chunk := parts[:n]
			parts = parts[n:]
			pool.workers.Go(func() { pool.look(pool.ctx, g.src, chunk) })
		}
	}
	return next
}

// later calls f soon, in order, without locks.
func (pool *Pool) later(f func()) {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	pool.events = append(pool.events, f)
	if !pool.telling {
		pool.telling = true
		pool.workers.Go(pool.tell)
	}
}

func (pool *Pool) tell() {
	for {
		pool.mu.Lock()
		events := pool.events
		pool.events = nil
		pool.telling = len(events) > 0
		pool.mu.Unlock()
		if len(events) == 0 {
			return
		}
		for _, f := range events {
			f()
		}
	}
}

// lanes are the connections to a destination broker; they are started when first needed.
func (pool *Pool) lanes(broker int32) (lanes [2]*sink) {
	pool.mu.Lock()
	defer pool.mu.Unlock()
	for i := range lanes {
		key := sinkKey{broker, i}
		s := pool.sinks[key]
		if s == nil {
			s = newSink(pool, broker, i)
			if pool.sinks != nil {
				pool.sinks[key] = s
				pool.workers.Go(func() { s.run(pool.ctx) })
			}
		}
		lanes[i] = s
	}
	return lanes
}

func (pool *Pool) startThread(t *thread) {
	pool.threads.Add(1)
	pool.workers.Go(func() {
		defer pool.threads.Add(-1)
		t.run(pool.ctx)
	})
}
