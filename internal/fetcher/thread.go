package fetcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
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
	session *kafka.FetchSession
	hungry  map[*part]int // the source has more than was fetched: polls in a row that brought nothing
	waiting bool          // somebody is left out for room, or was just added: poll briefly

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
	return &thread{pool: src.pool, src: src, key: key, wake: make(chan struct{}, 1), clock: src.pool.began,
		hungry: map[*part]int{}, parts: map[partKey]*part{}, changed: map[*part]struct{}{}}
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
	}
	t.conn, t.session = nil, nil
	clear(t.hungry)
}

// connect makes a connection with a new session of all partitions, unless there is one.
func (t *thread) connect(ctx context.Context) error {
	if t.conn != nil && t.conn.Err() == nil {
		return nil
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
	if !t.src.exact() {
		c.Isolation = kafka.ReadCommitted
	}
	if t.waiting {
		c.MaxWait = min(c.MaxWait, 20*time.Millisecond)
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
	t.waiting = false
	for p := range changed {
		p.mu.Lock()
		mine, wanted := p.thread == t, p.wanted()
		if mine && wanted {
			t.session.Update(kafka.FetchPartition{Topic: p.topic, TopicID: p.fetchID(), Partition: p.key.Index, Offset: p.pipe.tail,
				LeaderEpoch: p.sourceEpoch, LastFetchedEpoch: p.lastEpoch, MaxBytes: t.pool.partitionSize()})
			p.asked = p.pipe.tail
		}
		t.waiting = t.waiting || mine && !wanted
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

// receive waits for an answer and hands each partition's part on.
func (t *thread) receive(ctx context.Context, call *kafka.Call) {
	select {
	case <-call.Done():
	case <-ctx.Done():
		return
	}
	results, err := t.session.Handle(call)
	if err != nil {
		if !kafka.SessionLost(err) {
			t.giveBack(err)
		}
		return
	}
	t.src.up()
	arrived := time.Now()
	memory := newHold(t.pool.budget, int64(call.Held()), call.Release)
	call.Retain()
	defer memory.drop()
	var sinks []*sink
	var seen map[*part]struct{}
	if len(t.hungry) > 0 {
		seen = make(map[*part]struct{}, len(results))
	}
	bytes := 0
	for i := range results {
		f := &results[i]
		t.mu.Lock()
		p := t.parts[partKey{f.Topic, f.Partition}]
		t.mu.Unlock()
		if p == nil {
			continue
		}
		if seen != nil {
			seen[p] = struct{}{}
		}
		bytes += len(f.Bytes)
		if s := t.handle(p, f, memory, arrived); s != nil && !slices.Contains(sinks, s) {
			sinks = append(sinks, s)
		}
	}
	for _, s := range sinks {
		s.poke()
	}
	t.findEmptyTails(ctx, seen, bytes)
}

// handle takes one partition of an answer and returns the sink that has something to do now.
func (t *thread) handle(p *part, f *kafka.FetchedPartition, memory *hold, now time.Time) *sink {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thread != t {
		return nil
	}
	t.mu.Lock()
	t.changed[p] = struct{}{}
	t.mu.Unlock()
	if f.Err != nil {
		p.fetchFailed(f, now)
		return nil
	}
	p.away = time.Time{}
	p.awayTries = 0
	p.sawSource(f.LogStart, f.HighWatermark, now)
	if p.pipe.phase != running || p.pipe.tail != p.asked {
		return nil
	}
	if f.Diverging != mirror.NoPosition {
		p.askLook(now, cause{source: true, err: fmt.Errorf("source has another history: its leader epoch %d ends at offset %d",
			f.Diverging.LeaderEpoch, f.Diverging.Offset)})
		return nil
	}
	p.stats.fetchedBytes.Add(uint64(len(f.Bytes)))
	items, err := p.plan.plan(p.pipe.tail, fetched{records: f.Bytes, aborted: f.Aborted, bound: f.HighWatermark,
		arrived: int64(now.Sub(t.clock)), hold: memory})
	p.push(items)
	if err != nil {
		p.planFailed(err)
		return p.offer()
	}
	if t.src.bound(f) > p.pipe.tail {
		if len(items) > 0 {
			t.hungry[p] = 0
		} else if _, ok := t.hungry[p]; !ok {
			t.hungry[p] = 0
		}
	} else {
		delete(t.hungry, p)
	}
	return p.offer()
}

// push queues items; p.mu is held.
func (p *part) push(items []item) {
	if len(items) == 0 {
		return
	}
	p.pipe.push(items)
	if last := &items[len(items)-1]; last.epoch >= 0 {
		p.lastEpoch = last.epoch
	}
	if !p.active {
		p.active = true
		p.src.pool.active.Add(1)
	}
}

// planFailed: damaged bytes are fetched again, a few times; p.mu is held.
func (p *part) planFailed(err error) {
	switch {
	case errors.Is(err, errBeyond) && (p.beyond != p.pipe.tail || p.beyonds < maxBeyond):
		if p.beyond != p.pipe.tail {
			p.beyond, p.beyonds = p.pipe.tail, 0
		}
		p.beyonds++
	case errors.Is(err, errDamaged), errors.Is(err, errBeyond):
		p.damaged(p.pipe.tail, err)
	default:
		p.fail(err)
	}
}

const maxBeyond = 10 // answers in a row with a batch above the high watermark

// damaged counts a batch that arrived damaged; p.mu is held.
func (p *part) damaged(offset int64, err error) {
	if p.corruptAt != offset {
		p.corruptAt, p.corrupt = offset, 0
	}
	if p.corrupt++; p.corrupt >= corruptTries {
		p.fail(mirror.Errorf(mirror.CorruptSource, "the source's batch at offset %d stays damaged: %w", offset, err).
			WithHint("nothing was skipped; repair the source's log, or move its leader to a healthy replica"))
		return
	}
	p.src.pool.log.Warn("damaged batch fetched again", p.attrs(mirror.KeyOffset, offset, mirror.KeyErr, err)...)
}

// fetchFailed takes an error about one partition; p.mu is held.
func (p *part) fetchFailed(f *kafka.FetchedPartition, now time.Time) {
	switch {
	case kafka.OutOfRange(f.Err):
		p.askLook(now, cause{source: true, err: f.Err})
	case kafka.Corrupt(f.Err):
		p.damaged(p.pipe.tail, f.Err)
	case kafka.Classify(f.Err) == mirror.Refused:
		p.fail(f.Err)
	default: // leader moved, topic gone, not available yet: find it again
		p.lose(now, f.Err)
	}
}

// giveBack returns all partitions: their leaders are to be found anew.
func (t *thread) giveBack(err error) {
	if t.conn != nil {
		t.conn.Close()
	}
	t.conn, t.session = nil, nil
	t.mu.Lock()
	parts := make([]*part, 0, len(t.parts))
	for _, p := range t.parts {
		parts = append(parts, p)
	}
	t.mu.Unlock()
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

// findEmptyTails notices partitions of which the source says that more exists though a fetch with room to spare brings
// nothing: offsets that the cleaner has taken up to the end. They are looked at alone before they count as a hole.
func (t *thread) findEmptyTails(ctx context.Context, seen map[*part]struct{}, bytes int) {
	if len(t.hungry) == 0 || bytes > int(t.pool.fetchSize())/2 {
		return
	}
	for p, polls := range t.hungry {
		if _, ok := seen[p]; ok && polls == 0 {
			t.hungry[p] = 1
			continue
		}
		if t.hungry[p]++; t.hungry[p] >= 3 {
			delete(t.hungry, p)
			t.pool.lookAtTail(ctx, p)
		}
	}
}
