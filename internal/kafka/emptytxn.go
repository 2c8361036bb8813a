package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

const (
	emptyTxnPartitions = 500 // in one transaction
	emptyTxnTimeout    = time.Minute
	firstPause, pause  = 2 * time.Millisecond, 20 * time.Millisecond // while the transaction before is completed
)

// EmptyTxns fills offsets by transactions without data (protocol R12): the cluster's own coordinator writes one ABORT
// marker into each partition of a transaction. It needs WRITE on the transactional ids and the topics, and no right on
// the cluster.
//
// The ids belong to whoever called Init last; every earlier owner is fenced. It is safe for concurrent use, but a
// partition may be in one Fill at a time only.
type EmptyTxns struct {
	c    *Cluster
	mu   sync.Mutex     // held by Init, which takes all ids
	free chan *emptyTxn // ids that are not at work
}

type emptyTxn struct {
	id            string
	producerID    int64
	producerEpoch int16
	ready         bool // Init succeeded and no outcome has been in doubt since
}

// EmptyTxns prepares to fill by the given transactional ids, side by side. Nothing is sent before Init.
func (c *Cluster) EmptyTxns(ids ...string) *EmptyTxns {
	e := &EmptyTxns{c: c, free: make(chan *emptyTxn, len(ids))}
	for _, id := range ids {
		e.free <- &emptyTxn{id: id}
	}
	return e
}

// Init takes the ids over: what a former owner left open is aborted, which may still write markers, and its later
// requests are refused. When it returns, all markers of these ids are in the logs.
func (e *EmptyTxns) Init(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	mine := make([]*emptyTxn, 0, cap(e.free))
	defer func() {
		for _, t := range mine {
			e.free <- t
		}
	}()
	for range cap(e.free) {
		t, err := e.take(ctx)
		if err != nil {
			return err
		}
		mine = append(mine, t)
	}
	errs := make([]error, len(mine))
	var wg sync.WaitGroup
	for i, t := range mine {
		wg.Go(func() { errs[i] = e.c.initEmptyTxn(ctx, t) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err // the others say the same
		}
	}
	return nil
}

// take waits for an id that is not at work.
func (e *EmptyTxns) take(ctx context.Context) (*emptyTxn, error) {
	select {
	case t := <-e.free:
		return t, nil
	case <-ctx.Done():
		return nil, requestError(ctx, "wait for a transactional id", context.Cause(ctx))
	}
}

// FillResult tells how far a partition came.
type FillResult struct {
	// Done is the number of offsets that are filled for certain. The coordinator may write the markers a little later:
	// wait for the log's end before anything else is written.
	Done int
	// Err is why not all were; with AfterAppendDoubt one more transaction of each id may come to be written, at the
	// latest by the next Init.
	Err error
}

// Fill fills that many offsets of each partition, which takes some 10 ms for one offset of all of them, divided by the
// number of ids. It ends early when ctx does.
func (e *EmptyTxns) Fill(ctx context.Context, want map[TP]int) map[TP]FillResult {
	job := newFillJob(want)
	var wg sync.WaitGroup
	for range cap(e.free) {
		wg.Go(func() {
			t, err := e.take(ctx)
			if err != nil {
				job.stopped(err)
				return
			}
			defer func() { e.free <- t }()
			job.stopped(e.work(ctx, t, job))
		})
	}
	wg.Wait()
	return job.results()
}

// work runs one transaction after the other until nothing is left to fill.
func (e *EmptyTxns) work(ctx context.Context, t *emptyTxn, job *fillJob) error {
	for {
		if !t.ready {
			return mirror.Errorf(mirror.Retriable, "fill by %s: not initialised", t.id)
		}
		tps := job.next()
		if len(tps) == 0 {
			return nil
		}
		if err := e.c.emptyTxn(ctx, t, tps, job); err != nil {
			return err
		}
	}
}

// fillJob hands out the work of one Fill.
type fillJob struct {
	mu     sync.Mutex // guards what follows
	order  []TP
	left   map[TP]int
	result map[TP]FillResult
	err    error // why the last id stopped
}

func newFillJob(want map[TP]int) *fillJob {
	j := &fillJob{left: maps.Clone(want), result: make(map[TP]FillResult, len(want))}
	for tp := range want {
		j.order = append(j.order, tp)
		j.result[tp] = FillResult{}
	}
	return j
}

// next gives the partitions of one transaction: those that need an offset yet and have not failed, the neediest first.
func (j *fillJob) next() []TP {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.order = slices.DeleteFunc(j.order, func(tp TP) bool { return j.left[tp] <= 0 || j.result[tp].Err != nil })
	slices.SortFunc(j.order, func(a, b TP) int { return j.left[b] - j.left[a] })
	tps := slices.Clone(j.order[:min(len(j.order), emptyTxnPartitions)])
	for _, tp := range tps {
		j.left[tp]--
	}
	return tps
}

func (j *fillJob) done(tps []TP) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, tp := range tps {
		r := j.result[tp]
		r.Done++
		j.result[tp] = r
	}
}

func (j *fillJob) failed(err error, tps ...TP) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, tp := range tps {
		r := j.result[tp]
		r.Err = err
		j.result[tp] = r
	}
}

func (j *fillJob) stopped(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		j.err = err
	}
}

func (j *fillJob) results() map[TP]FillResult {
	j.mu.Lock()
	defer j.mu.Unlock()
	for tp, r := range j.result {
		if j.left[tp] > 0 && r.Err == nil {
			r.Err = notSent(j.err)
			j.result[tp] = r
		}
	}
	return j.result
}

// emptyTxn runs one transaction. An error is the id's end until the next Init; partitions that are refused are only
// told to the job.
func (c *Cluster) emptyTxn(ctx context.Context, t *emptyTxn, tps []TP, job *fillJob) error {
	t.ready = false // until the outcome is known
	added, err := c.addPartitions(ctx, t, tps, job)
	if err == nil && len(added) > 0 {
		err = c.endEmptyTxn(ctx, t)
	}
	if err != nil {
		err = fmt.Errorf("fill by %s: %w", t.id, err)
		job.failed(err, added...)
		return err
	}
	t.ready = true
	job.done(added)
	return nil
}

// initEmptyTxn raises the id's producer epoch and waits until what was open before is completed.
func (c *Cluster) initEmptyTxn(ctx context.Context, t *emptyTxn) error {
	t.ready = false
	err := untilCompleted(ctx, func() error {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = &t.id, int32(emptyTxnTimeout.Milliseconds())
		resp, err := transact[*kmsg.InitProducerIDResponse](ctx, c, "initialise transactional id", req)
		if err != nil {
			return err
		}
		t.producerID, t.producerEpoch = resp.ProducerID, resp.ProducerEpoch
		return answerError("initialise transactional id", resp.ErrorCode, nil)
	})
	if err != nil {
		return fmt.Errorf("take over %s: %w", t.id, err)
	}
	t.ready = true
	return nil
}

// addPartitions adds those that are not refused. Brokers add all or none.
func (c *Cluster) addPartitions(ctx context.Context, t *emptyTxn, tps []TP, job *fillJob) ([]TP, error) {
	for len(tps) > 0 {
		var refused map[TP]error
		err := untilCompleted(ctx, func() (err error) {
			refused, err = c.addOnce(ctx, t, tps)
			return err
		})
		if err != nil || len(refused) == 0 {
			return tps, err
		}
		for tp, err := range refused {
			job.failed(notSent(err), tp)
		}
		tps = slices.DeleteFunc(slices.Clone(tps), func(tp TP) bool { return refused[tp] != nil })
	}
	return nil, nil
}

// addOnce tells which partitions are refused, or an error that is about the transaction.
func (c *Cluster) addOnce(ctx context.Context, t *emptyTxn, tps []TP) (map[TP]error, error) {
	const op = "add partitions to transaction"
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = t.id, t.producerID, t.producerEpoch
	asked := make(map[TopicPartition]TP, len(tps))
	for topic, of := range byTopic(tps) {
		at := kmsg.NewAddPartitionsToTxnRequestTopic()
		at.Topic = topic
		for _, tp := range of {
			at.Partitions = append(at.Partitions, tp.Partition)
			asked[tp.Name()] = tp
		}
		req.Topics = append(req.Topics, at)
	}
	resp, err := transact[*kmsg.AddPartitionsToTxnResponse](ctx, c, op, req)
	if err != nil {
		return nil, err
	}
	refused := map[TP]error{}
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			err := answerError(op, p.ErrorCode, nil)
			switch {
			case err == nil || notAttempted(err):
			case UnknownTopic(err) || TopicAuthorization(err):
				refused[asked[TopicPartition{rt.Topic, p.Partition}]] = err
			default:
				return nil, err
			}
		}
	}
	return refused, nil
}

func (c *Cluster) endEmptyTxn(ctx context.Context, t *emptyTxn) error {
	return untilCompleted(ctx, func() error {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = t.id, t.producerID, t.producerEpoch, false
		resp, err := transact[*kmsg.EndTxnResponse](ctx, c, "end transaction", req)
		if err != nil {
			return err
		}
		return answerError("end transaction", resp.ErrorCode, nil)
	})
}

// transact sends a request to the transaction coordinator if the lease holds. The client may repeat it: all three kinds
// are idempotent for one producer epoch.
func transact[A kmsg.Response](ctx context.Context, c *Cluster, op string, req kmsg.Request) (answer A, err error) {
	if err := checkLease(ctx); err != nil {
		return answer, requestError(ctx, op, err)
	}
	return ask[A](ctx, c, op, req)
}

// untilCompleted repeats do while the coordinator is completing the transaction before, or is moving.
func untilCompleted(ctx context.Context, do func() error) error {
	for wait := firstPause; ; wait = min(2*wait, pause) {
		err := do()
		if !ConcurrentTransactions(err) && !CoordinatorMoved(err) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return requestError(ctx, "wait for the transaction before", err)
		}
	}
}
