package fetcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// A transaction is an orphan if it is open at the destination and its marker is gone at the source. Nothing would ever
// end it there, and the marker of its producer's next transaction would decide it, too.
//
// The source removes a marker only after all data of its transaction, be it by cleaning or by moving its log start. So a
// hole hides no marker of a transaction of which the source still held data when the hole was fetched. If it holds none of
// what was copied, then an ABORT in the hole is right whatever the outcome was: no consumer of the source gets that data.

// openTxn is a mirrored transaction that is open at the destination.
type openTxn struct {
	epoch int16
	from  int64 // where it began
	at    int64 // where the source was last known to hold data of it
	seen  int64 // when that was, ns of the process clock; −1: not since the partition was looked at
}

// openMirrored are the mirrored transactions that are open, by producer id.
func openMirrored(producers []kafka.Producer) map[int64]openTxn {
	open := map[int64]openTxn{}
	for _, pr := range producers {
		if pr.TxnStart >= 0 && mirror.MirroredProducer(pr.ID) {
			open[pr.ID] = openTxn{epoch: pr.Epoch, from: pr.TxnStart, at: pr.TxnStart, seen: -1}
		}
	}
	return open
}

// opened notes that a write belongs to a transaction.
func (p *pipeline) opened(w *write) {
	t, ok := p.open[w.owner.id]
	if !ok {
		t.from = w.from
	}
	t.epoch, t.at, t.seen = w.owner.epoch, w.from, w.arrived
	if p.open == nil {
		p.open = map[int64]openTxn{}
	}
	p.open[w.owner.id] = t
}

// doubtful: a hole may be where the marker of an open transaction was.
func (p *pipeline) doubtful(i *item) bool {
	if i.kind != hole || i.reason != compacted && i.reason != lost {
		return false
	}
	for _, t := range p.open {
		if t.seen < i.arrived {
			return true
		}
	}
	return false
}

// inquiry asks a source about the transactions that are open at the destination, before a hole is filled.
type inquiry struct {
	from, to int64 // the hole
	open     map[int64]openTxn
	asked    int64           // when, ns of the process clock
	held     map[int64]int64 // by producer id: where the source holds data of it
	orphans  []producer      // the most urgent ones first
}

// inquire hands out the question about the hole at the head; ready must have said ask.
func (p *pipeline) inquire(now int64) *inquiry {
	head := p.queue.at(0)
	p.inquiry = &inquiry{from: head.from, to: head.to, open: maps.Clone(p.open), asked: now, held: map[int64]int64{}}
	return p.inquiry
}

// informed takes the answer, unless it has come too late: the orphans end at the first offsets of the hole.
func (p *pipeline) informed(q *inquiry) {
	if p.inquiry != q {
		return
	}
	p.inquiry = nil
	for id, at := range q.held {
		t := p.open[id]
		t.at, t.seen = at, q.asked
		p.open[id] = t
	}
	rest := *p.queue.at(0)
	var items []item
	for _, o := range q.orphans[:min(int64(len(q.orphans)), rest.to-rest.from)] {
		items = append(items, item{kind: ending, from: rest.from, to: rest.from + 1, maxTime: -1, epoch: -1, arrived: rest.arrived, owner: o})
		rest.from++
	}
	if rest.from < rest.to {
		items = append(items, rest)
	}
	p.queue.replaceFirst(items)
}

// sourceLog is a partition of the source.
type sourceLog interface {
	// read gives batches from the one that holds or follows an offset on; one at least, unless there is none.
	read(ctx context.Context, offset int64, maxBytes int32) ([]byte, error)
	// producers lists whose transactions are open; none where the source is too old to tell.
	producers(ctx context.Context) ([]kafka.Producer, error)
}

const (
	scanBytes = 1 << 20
	scanReads = 64 // ahead of a hole
)

// ask finds the orphans.
func (q *inquiry) ask(ctx context.Context, src sourceLog, slot int8) error {
	if err := q.lookForData(ctx, src, slot); err != nil || len(q.held) == len(q.open) {
		return err
	}
	producers, err := src.producers(ctx)
	if err != nil {
		return err
	}
	for _, pr := range producers { // offsets are the same on both sides: one that begins later is another one
		if id, err := shiftProducer(pr.ID, slot); err == nil && pr.TxnStart >= 0 {
			if t, open := q.open[id]; open && pr.TxnStart <= t.from {
				q.held[id] = t.at
			}
		}
	}
	return q.choose(ctx, src, slot)
}

// lookForData finds the transactions of which the source still holds something that was copied.
func (q *inquiry) lookForData(ctx context.Context, src sourceLog, slot int8) error {
	see := func(b recordbatch.Batch) bool {
		if id, err := shiftProducer(b.ProducerID(), slot); err == nil && !b.IsControl() && b.BaseOffset() < q.from {
			if t, open := q.open[id]; open && b.NextOffset() > t.from {
				q.held[id] = max(b.BaseOffset(), t.from)
			}
		}
		return len(q.held) == len(q.open)
	}
	for id, t := range q.open { // usually it is still where it was
		if _, held := q.held[id]; held {
			continue
		}
		if _, err := scan(ctx, src, t.at, t.at+1, 1, see); err != nil {
			return err
		}
	}
	low := q.from
	for id, t := range q.open {
		if _, held := q.held[id]; !held {
			low = min(low, t.from)
		}
	}
	_, err := scan(ctx, src, low, q.from, scanBytes, see)
	return err
}

// choose lists the orphans. Where the hole has an offset for each transaction of which the source holds nothing, all end.
// Otherwise what follows tells whose marker it was: if a producer's next batch is a marker, that one ends what is open; if
// it is data of another epoch, the marker was here.
func (q *inquiry) choose(ctx context.Context, src sourceLog, slot int8) error {
	left := map[int64]producer{}
	for id, t := range q.open {
		if _, held := q.held[id]; !held {
			left[id] = producer{id, t.epoch}
		}
	}
	room := int(q.to - q.from)
	var here, perhaps []producer
	next, reads := q.to, 0
	for before := int64(-1); len(left)+len(here)+len(perhaps) > room && next > before && reads < scanReads; reads++ {
		before = next
		var err error
		next, err = scan(ctx, src, next, next+1, scanBytes, func(b recordbatch.Batch) bool {
			id, err := shiftProducer(b.ProducerID(), slot)
			o, ok := left[id]
			switch {
			case err != nil || !ok || b.BaseOffset() < q.to:
				return false
			case b.IsControl():
				q.held[id] = q.open[id].at
			case b.ProducerEpoch() != o.epoch:
				here = append(here, o)
			default:
				perhaps = append(perhaps, o)
			}
			delete(left, id)
			return false
		})
		if err != nil {
			return err
		}
	}
	idle := slices.SortedFunc(maps.Values(left), func(a, b producer) int { return cmp.Compare(a.id, b.id) })
	if reads == scanReads { // who knows what they do later
		perhaps, idle = append(perhaps, idle...), nil
	}
	if len(here) == room {
		q.orphans = here
		return nil
	}
	if len(here)+len(perhaps) > room {
		return mirror.Errorf(mirror.Diverged, "offsets %d to %d held the ends of transactions that the source has removed, and which of %d it cannot be told",
			q.from, q.to-1, len(here)+len(perhaps)).WithHint(`"mirrord recover --reseed" copies the topic again`)
	}
	q.orphans = slices.Concat(here, perhaps, idle)
	return nil
}

// scan shows the batches of producers from an offset on until see has seen enough, or up to an offset; it returns where it
// has come to. Only what is whole is believed.
func scan(ctx context.Context, src sourceLog, next, end int64, maxBytes int32, see func(recordbatch.Batch) bool) (int64, error) {
	for next < end {
		records, err := src.read(ctx, next, maxBytes)
		if err != nil {
			return next, err
		}
		if len(records) == 0 { // nothing is left
			return next, nil
		}
		before := next
		for len(records) > 0 {
			b, rest, err := recordbatch.Cut(records)
			if errors.Is(err, recordbatch.ErrPartial) && next > before {
				break
			}
			if err == nil { // what is damaged must not look like another producer's
				err = cmp.Or(b.Validate(), b.CheckCRC())
			}
			if err != nil {
				return next, fmt.Errorf("batch at offset %d: %w", next, err)
			}
			records, next = rest, max(next, b.NextOffset())
			if b.IsTransactional() && see(b) {
				return next, nil
			}
		}
	}
	return next, nil
}

// inquire asks the source and lets the partition go on; p.mu is held.
func (pool *Pool) inquire(p *part) {
	q := p.pipe.inquire(int64(time.Since(pool.began)))
	tp, slot := p.sourceTP(-1), p.plan.slot
	pool.workers.Go(func() {
		ctx, cancel := context.WithTimeout(pool.ctx, 3*pool.cfg.RequestTimeout)
		defer cancel()
		err := q.ask(ctx, sourcePartition{p.src, tp}, slot)
		p.mu.Lock()
		s := p.inquired(q, err)
		p.mu.Unlock()
		if s != nil {
			s.poke()
		}
	})
}

// inquired goes on after an inquiry; p.mu is held.
func (p *part) inquired(q *inquiry, err error) *sink {
	if p.pipe.inquiry != q {
		return nil
	}
	if mirror.KindOf(err) == mirror.Diverged {
		p.fail(err)
		return nil
	}
	if err != nil {
		p.pipe.inquiry = nil
		p.askLook(time.Now(), cause{err: fmt.Errorf("source: look for open transactions: %w", err)})
		return nil
	}
	p.pipe.informed(q)
	if len(q.orphans) > 0 {
		p.src.pool.log.Info("transactions are aborted whose data and markers the source has removed",
			p.attrs(mirror.KeyOffset, q.from, mirror.KeyCount, len(q.orphans))...)
	}
	return p.offer()
}

// sourcePartition is a sourceLog over the network. What lies below the log start is gone.
type sourcePartition struct {
	src *source
	tp  kafka.TP
}

func (s sourcePartition) read(ctx context.Context, offset int64, maxBytes int32) ([]byte, error) {
	cluster, err := s.src.cluster()
	if err != nil {
		return nil, err
	}
	opts := kafka.ReadOptions{MaxBytes: maxBytes}
	f, err := cluster.Read(ctx, s.tp, offset, opts)
	if !kafka.OutOfRange(err) {
		return f.Bytes, err
	}
	r := cluster.Ranges(ctx, []kafka.TP{s.tp})[s.tp]
	if r.Err != nil {
		return nil, r.Err
	}
	if r.LogStart <= offset {
		return nil, err
	}
	f, err = cluster.Read(ctx, s.tp, r.LogStart, opts)
	return f.Bytes, err
}

func (s sourcePartition) producers(ctx context.Context) ([]kafka.Producer, error) {
	cluster, err := s.src.cluster()
	if err != nil {
		return nil, err
	}
	r := cluster.Producers(ctx, []kafka.TP{s.tp})[s.tp]
	if kafka.UnsupportedVersion(r.Err) {
		return nil, nil
	}
	return r.Producers, r.Err
}
