package fetcher

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"mirrord/internal/kafka"
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
	return &sink{
		pool: pool, broker: broker, lane: lane, join: &joining{budget: pool.budget},
		wake: make(chan struct{}, 1), sent: make(chan request, requestDepth-1),
	}
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
