package fetcher

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"mirrord/internal/kafka"
)

// thread fetches from one source broker for one mirror: one raw connection, one fetch session, one request in flight.
// Idle partitions cost nothing: a long poll names only what changed.
type thread struct {
	pool  *Pool
	src   *source
	key   threadKey
	wake  chan struct{}
	clock time.Time // start of the process clock of items

	// run's own
	conn    *kafka.Conn
	exact   bool // what the request in flight asks for
	session *kafka.FetchSession
	hungry  map[*part]int  // the source has more than was fetched: polls in a row that brought nothing
	back    []*part        // had lost their leader and are asked for again; an answer that says nothing of them is a good one
	out     map[*part]bool // mine, but left out of the fetch; true: for room. Polls are short as long as there are any

	renew atomic.Bool // the connection is out of date

	mu      sync.Mutex // guards what follows; a leaf
	parts   map[partKey]*part
	changed map[*part]struct{} // to be looked at before the next request; those of other threads are forgotten
	closed  bool
}

type threadKey struct {
	broker int32
	index  int
}

type partKey struct {
	topic string
	index int32
}

func newThread(src *source, key threadKey) *thread {
	return &thread{
		pool: src.pool, src: src, key: key, wake: make(chan struct{}, 1), clock: src.pool.began,
		hungry: map[*part]int{}, out: map[*part]bool{}, parts: map[partKey]*part{}, changed: map[*part]struct{}{},
	}
}

// add gives the thread a partition; its lock is held. False: the thread has ended.
func (t *thread) add(p *part) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.parts[partKey{p.topic, p.key.Index}] = p
	t.changed[p] = struct{}{}
	p.thread = t
	t.poke()
	return true
}

// remove takes a partition away; its lock is held.
func (t *thread) remove(p *part) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.parts, partKey{p.topic, p.key.Index})
	t.changed[p] = struct{}{}
	p.thread = nil
	t.poke()
}

// touch has a partition looked at before the next request: there is room again, or it goes on from elsewhere.
func (t *thread) touch(p *part) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed[p] = struct{}{}
	t.poke()
}

func (t *thread) poke() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run fetches until ctx ends or no partition is left for a while.
func (t *thread) run(ctx context.Context) {
	defer t.hangUp()
	for ctx.Err() == nil {
		if t.renew.Swap(false) {
			t.hangUp()
		}
		t.refresh()
		if t.size() == 0 {
			if t.end(ctx) {
				return
			}
			continue
		}
		if t.session != nil && t.session.Len() == 0 {
			t.sleep(ctx, time.Second)
			continue
		}
		if !t.pool.roomToFetch(ctx) {
			return
		}
		if err := t.connect(ctx); err != nil {
			t.giveBack(err)
			continue
		}
		t.session.Configure(t.config())
		call := t.session.Send()
		t.receive(ctx, call)
		call.Release()
	}
}

func (t *thread) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.parts)
}

// end waits for new partitions and ends the thread if none come.
func (t *thread) end(ctx context.Context) bool {
	t.sleep(ctx, 10*time.Second)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = len(t.parts) == 0 && len(t.changed) == 0 || ctx.Err() != nil
	return t.closed
}

func (t *thread) sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-t.wake:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (t *thread) hangUp() {
	if t.session != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		t.session.Close(ctx)
	}
	if t.conn != nil {
		t.conn.Close()
		t.sever()
	}
	t.conn, t.session = nil, nil
	t.back = nil
	clear(t.hungry)
	clear(t.out)
}

// sever notes that the connection has ended: who answers next may be a source restored from a backup, with the same
// topic ids and epochs and other records. Only the records tell (protocol R7).
func (t *thread) sever() {
	for _, p := range t.all() {
		p.mu.Lock()
		p.severed = p.severed || p.thread == t
		p.mu.Unlock()
	}
}

func (t *thread) all() []*part {
	t.mu.Lock()
	defer t.mu.Unlock()
	parts := make([]*part, 0, len(t.parts))
	for _, p := range t.parts {
		parts = append(parts, p)
	}
	return parts
}

// connect makes a connection with a new session of all partitions, unless there is one.
func (t *thread) connect(ctx context.Context) error {
	if t.conn != nil && t.conn.Err() == nil {
		return nil
	}
	if t.conn != nil {
		t.sever()
	}
	t.conn, t.session = nil, nil
	cluster, err := t.src.cluster()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, t.pool.cfg.RequestTimeout)
	defer cancel()
	if t.conn, err = cluster.Dial(ctx, t.key.broker); err != nil {
		return err
	}
	t.session = kafka.NewFetchSession(t.conn, t.config())
	clear(t.hungry)
	t.mu.Lock()
	for _, p := range t.parts {
		t.changed[p] = struct{}{}
	}
	t.mu.Unlock()
	t.refresh()
	return nil
}

func (t *thread) config() kafka.FetchConfig {
	cfg := &t.pool.cfg
	c := kafka.FetchConfig{MaxWait: cfg.MaxWait, MinBytes: cfg.MinBytes, MaxBytes: t.pool.fetchSize()}
	if t.exact = t.src.exact(); !t.exact {
		c.Isolation = kafka.ReadCommitted
	}
	for _, full := range t.out {
		c.MaxWait = min(c.MaxWait, shortPoll)
		if full {
			c.MaxWait = min(c.MaxWait, shortestPoll)
			break
		}
	}
	return c
}

// refresh brings the session up to date with the partitions that changed.
func (t *thread) refresh() {
	if t.session == nil {
		return
	}
	t.mu.Lock()
	changed := t.changed
	t.changed = make(map[*part]struct{}, len(changed))
	t.mu.Unlock()
	for p := range changed {
		p.mu.Lock()
		if p.thread == t && p.severed {
			p.crossSeam(time.Now())
		}
		mine, wanted := p.thread == t, p.wanted()
		if mine && wanted {
			t.session.Update(kafka.FetchPartition{
				Topic: p.topic, TopicID: p.fetchID(), Partition: p.key.Index, Offset: p.pipe.tail,
				LeaderEpoch: p.sourceEpoch, LastFetchedEpoch: p.lastEpoch, MaxBytes: t.pool.partitionSize(),
			})
			p.asked = p.pipe.tail
			if !p.away.IsZero() {
				t.back = append(t.back, p)
			}
		}
		if mine && !wanted {
			t.out[p] = p.leftOut
		} else {
			delete(t.out, p)
		}
		p.mu.Unlock()
		if !mine || !wanted {
			t.forget(p, mine)
		}
	}
}

// forget takes a partition out of the session, unless another part of the same name has its place.
func (t *thread) forget(p *part, mine bool) {
	delete(t.hungry, p)
	t.mu.Lock()
	now := t.parts[partKey{p.topic, p.key.Index}]
	t.mu.Unlock()
	if mine || now == nil {
		t.session.Forget(p.topic, p.key.Index)
	}
}

// giveBack returns all partitions: their leaders are to be found anew.
func (t *thread) giveBack(err error) {
	if t.conn != nil {
		t.conn.Close()
	}
	t.conn, t.session, t.back = nil, nil, nil
	parts := t.all()
	if t.pool.stopping() {
		return
	}
	t.src.downBy(t.key.broker, err)
	now := time.Now()
	for _, p := range parts {
		p.mu.Lock()
		if p.thread == t {
			p.lose(now, err)
		}
		p.mu.Unlock()
	}
	t.mu.Lock()
	clear(t.changed)
	t.mu.Unlock()
	clear(t.hungry)
	t.pool.poke()
}
