package fetcher

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// sink writes to one destination broker over one connection: requests with one batch of each of many partitions,
// several of them in flight. Two goroutines: run sends, answers takes what comes back.
type sink struct {
	pool   *Pool
	broker int32
	lane   int
	join   *joining

	wake chan struct{}
	sent chan request // closed by run
	conn atomic.Pointer[kafka.Conn]

	mu    sync.Mutex // guards what follows; a leaf
	ready []*part
	held  []*part   // by the throttle
	until time.Time // when they may go
}

// request is a Produce on its way. parts are in the order of its batches.
type request struct {
	call  *kafka.Call
	parts []*part
	err   error // nothing was sent
}

func newSink(pool *Pool, broker int32, lane int) *sink {
	return &sink{pool: pool, broker: broker, lane: lane, join: &joining{budget: pool.budget},
		wake: make(chan struct{}, 1), sent: make(chan request, requestDepth-1)}
}

// list takes a partition that has something to send; its lock is held.
func (s *sink) list(p *part) {
	s.mu.Lock()
	s.ready = append(s.ready, p)
	s.mu.Unlock()
}

func (s *sink) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run sends until ctx ends, then waits for the answers that are still due. The channel of requests in flight bounds their number.
func (s *sink) run(ctx context.Context) {
	var answers sync.WaitGroup
	answers.Go(s.answers)
	defer answers.Wait()
	defer close(s.sent)
	for {
		d, pause := s.build()
		if len(d.parts) == 0 {
			if !s.rest(ctx, pause) {
				s.abort()
				return
			}
			continue
		}
		s.sent <- s.dispatch(ctx, d)
	}
}

// rest waits for work, at most for a pause (0: for ever); false: the end.
func (s *sink) rest(ctx context.Context, pause time.Duration) bool {
	var later <-chan time.Time
	if pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		later = t.C
	}
	select {
	case <-s.wake:
	case <-later:
	case <-ctx.Done():
		return false
	}
	return true
}

// abort ends the connection: what is in flight is answered with an error.
func (s *sink) abort() {
	if conn := s.conn.Swap(nil); conn != nil {
		conn.Close()
	}
}

// draft is a request that is being put together.
type draft struct {
	parts  []*part
	writes []*write
	bytes  int64
	owner  producer // of a transactional request, which has exactly one; zero: plain
}

// build takes one write of each ready partition, as far as they fit one request. pause: how long the throttle holds
// those that are left; 0: none.
func (s *sink) build() (d draft, pause time.Duration) {
	now := time.Now()
	ready := s.listed(now)
	var again, looks []*part
	var hold time.Duration
	for i, p := range ready {
		if d.bytes >= maxRequest {
			again = append(again, ready[i:]...)
			break
		}
		switch wait, verdict := s.take(&d, p, now); verdict {
		case takeLater:
			again = append(again, p)
		case takeHeld:
			s.hold(p, now.Add(wait))
			hold += wait
		case takeLook:
			looks = append(looks, p)
		}
	}
	s.pool.metrics.throttled.Add(int64(hold))
	if len(looks) > 0 {
		s.pool.checkEnds(s.broker, looks)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(again, s.ready...)
	if len(s.held) > 0 {
		pause = max(s.until.Sub(now), time.Millisecond)
	}
	return d, pause
}

// listed empties the list of ready partitions; those that the throttle held come back once they may go.
func (s *sink) listed(now time.Time) []*part {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := s.ready
	s.ready = nil
	if len(s.held) > 0 && !now.Before(s.until) {
		ready, s.held = append(ready, s.held...), nil
	}
	return ready
}

func (s *sink) hold(p *part, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) == 0 || until.Before(s.until) {
		s.until = until
	}
	s.held = append(s.held, p)
}

// taking is what build did with a partition.
type taking uint8

const (
	taken     taking = iota // or nothing to take
	takeLater               // belongs into another request
	takeHeld                // by the throttle
	takeLook                // its log end is to be read first
)

func (s *sink) take(d *draft, p *part, now time.Time) (time.Duration, taking) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listed = false
	if p.pipe.ready() != send {
		p.offer()
		return 0, taken
	}
	head := p.pipe.queue.at(0)
	if len(d.parts) > 0 && head.owner != d.owner {
		p.listed = true
		return 0, takeLater
	}
	if p.pipe.flight.n == 0 && now.Sub(p.touched) > idleLook {
		p.checking = true
		return 0, takeLook
	}
	if hold := max(p.src.throttle.wait(now), s.pool.throttle.wait(now)); hold > 0 {
		p.listed = true
		return hold, takeHeld
	}
	if head.kind == seeds && head.batch == nil {
		if err := p.fillerFor(head); err != nil {
			p.fail(err)
			return 0, taken
		}
	}
	p.numbers.lag.writing(head.from, head.maxTime)
	d.owner = head.owner
	p.pipe.aloneBelow = now.Add(expiryMargin - expiry).UnixMilli()
	w := p.pipe.take(s.join)
	p.touched = now
	d.parts, d.writes = append(d.parts, p), append(d.writes, w)
	d.bytes += int64(len(w.batch))
	p.src.throttle.spend(now, int64(len(w.batch)))
	s.pool.throttle.spend(now, int64(len(w.batch)))
	if p.pipe.ready() == send { // for the next request
		p.listed = true
		s.list(p)
	}
	return 0, taken
}

// dispatch sends a draft. A write that cannot leave is answered like one that was lost: look, then go on.
func (s *sink) dispatch(ctx context.Context, d draft) request {
	d.sort()
	r := request{parts: d.parts}
	conn, err := s.connect(ctx)
	if err != nil {
		r.err = err
		return r
	}
	req := &kafka.ProduceRequest{Timeout: s.pool.cfg.RequestTimeout, Topics: d.topics()}
	if d.owner != (producer{}) {
		id := transactionalID
		req.TransactionalID = &id
	}
	if r.err = s.pool.deps.Lease(); r.err != nil { // protocol R16: immediately before it leaves
		s.abort()
		return r
	}
	r.call = conn.SendProduce(req)
	return r
}

// connect gives a connection that has not ended.
func (s *sink) connect(ctx context.Context) (*kafka.Conn, error) {
	if conn := s.conn.Load(); conn != nil && conn.Err() == nil {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.pool.cfg.RequestTimeout)
	defer cancel()
	conn, err := s.pool.deps.Destination.Dial(ctx, s.broker)
	if err == nil {
		s.conn.Store(conn)
	}
	return conn, err
}

// transactionalID goes with transactional batches (protocol R14). No coordinator is ever asked about it.
const transactionalID = "mirrord"

// sort brings the partitions of a topic together.
func (d *draft) sort() {
	type pair struct {
		p *part
		w *write
	}
	pairs := make([]pair, len(d.parts))
	for i := range pairs {
		pairs[i] = pair{d.parts[i], d.writes[i]}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		if a.p.topic == b.p.topic {
			return 0
		}
		return strings.Compare(a.p.topic, b.p.topic)
	})
	for i := range pairs {
		d.parts[i], d.writes[i] = pairs[i].p, pairs[i].w
	}
}

func (d *draft) topics() (topics []kafka.ProduceTopic) {
	for i, p := range d.parts {
		if i == 0 || d.parts[i-1].topic != p.topic {
			topics = append(topics, kafka.ProduceTopic{Name: p.topic, ID: p.destID})
		}
		t := &topics[len(topics)-1]
		t.Partitions = append(t.Partitions, kafka.ProducePartition{Index: p.key.Index, Batch: d.writes[i].batch})
	}
	return topics
}

// answers hands each answer to its partition, in the order of the requests.
func (s *sink) answers() {
	for r := range s.sent {
		var results []kafka.ProduceResult
		err := r.err
		if err == nil {
			results, err = r.call.Produced()
		}
		now := time.Now()
		for i, p := range r.parts {
			a := answer{verdict: ambiguous, err: err}
			if r.err != nil {
				a.verdict = refused
			}
			if err == nil {
				a = readAnswer(results[i])
				s.pool.sawDestStart(p, results[i].LogStart)
			}
			s.pool.answered(p, a, now)
		}
		s.poke()
	}
}

// readAnswer says what a broker's word about a batch means.
func readAnswer(r kafka.ProduceResult) answer {
	a := answer{base: r.BaseOffset, appendTime: r.LogAppendTime, err: r.Err}
	switch {
	case r.Err == nil:
	case kafka.TooLarge(r.Err):
		a.verdict = tooLarge
	case kafka.Corrupt(r.Err):
		a.verdict = damaged
	case kafka.OutOfOrderSequence(r.Err), kafka.DuplicateSequence(r.Err), kafka.InvalidProducerEpoch(r.Err), kafka.UnknownTopic(r.Err):
		a.verdict = refused
	case kafka.AfterAppendDoubt(r.Err):
		a.verdict = ambiguous
	case kafka.Classify(r.Err) == mirror.Refused:
		a.verdict = hopeless
	default:
		a.verdict = refused
	}
	return a
}
