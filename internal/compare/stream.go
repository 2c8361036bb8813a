package compare

import (
	"context"
	"errors"
	"fmt"
	"io"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// item is a data record, with what became of its transaction. It is valid until its stream goes on.
type item struct {
	recordbatch.Record
	aborted  bool
	producer int64 // of its batch
}

// visible reports whether a read_committed consumer gets the record. nil: there is none.
func (i *item) visible() bool { return i != nil && !i.aborted }

// stream gives the data records of one log in offset order, up to end. Below decided it knows which are aborted, from
// there on none counts as aborted.
type stream struct {
	side     side
	tp       kafka.TP
	codec    recordbatch.Codec
	decided  int64
	end      int64
	maxBytes int32

	from     int64 // where what was given begins: moves up when the log start overtakes the stream
	next     int64 // everything below was given or is in the open batch
	rest     []byte
	txns     abortedTxns
	sure     bool                    // rest was read as committed: it says nothing of what lies at or beyond decided
	open     *recordbatch.Reader     // the batch at work; nil: none
	least    int64                   // offsets of it that count begin here
	aborted  bool                    // so is its transaction
	producer int64                   // that wrote it
	item     item                    // what peek gave
	given    bool                    // item is still to be taken
	single   bool                    // read nothing beyond what was loaded: errShort instead
	batches  int                     // taken from the current chunk
	bytes    int64                   // fetched so far
	early    map[int64]struct{}      // first offsets of aborted transactions that began before the stream
	onBatch  func(recordbatch.Batch) // each batch before it is opened; may be nil
}

// errShort says that a stream would have to read more than it may.
var errShort = errors.New("not enough was read")

// peek gives the next record without taking it; nil: the stream is at its end.
func (s *stream) peek(ctx context.Context) (*item, error) {
	for !s.given {
		var err error
		switch {
		case s.open != nil:
			err = s.step()
		case s.next >= s.end:
			return nil, nil
		case len(s.rest) == 0:
			if err := s.fetch(ctx); err != nil {
				return nil, err
			}
		default:
			err = s.cut()
		}
		if err != nil {
			return nil, fmt.Errorf("read %s at offset %d: %w", s.tp, s.next, err)
		}
	}
	return &s.item, nil
}

// take removes what peek gave.
func (s *stream) take() { s.given = false }

// step goes on in the open batch.
func (s *stream) step() error {
	r, err := s.open.Next()
	if errors.Is(err, io.EOF) {
		s.open = nil
		return nil
	}
	if err == nil && r.Offset >= s.least && r.Offset < s.end {
		s.item, s.given = item{r, s.aborted, s.producer}, true
	}
	return err
}

// fetch reads the next chunk. Where there is no batch up to the broker's limit, all that is left is a hole.
func (s *stream) fetch(ctx context.Context) error {
	if s.single {
		return errShort
	}
	s.rest, s.item = nil, item{} // or a large batch and the next one are held at once
	c := s.side.read(ctx, []position{s.position()}, s.maxBytes)[0]
	if kafka.OutOfRange(c.err) {
		return s.overtaken(ctx)
	}
	if c.err != nil {
		return c.err
	}
	s.load(c)
	if len(c.bytes) > 0 {
		return nil
	}
	end := s.end
	if s.next < s.decided {
		end = min(end, s.decided)
	}
	if c.limit < end {
		return mirror.Errorf(mirror.Retriable, "read %s: offset %d was readable and is not any more", s.tp, end-1)
	}
	s.next = end
	return nil
}

func (s *stream) position() position {
	return position{tp: s.tp, offset: s.next, committed: s.next < s.decided, maxBytes: s.maxBytes}
}

// load takes the answer to position.
func (s *stream) load(c chunk) {
	s.rest, s.batches, s.sure = c.bytes, 0, s.next < s.decided
	s.bytes += int64(len(c.bytes))
	s.txns = abortedTxns{listed: c.aborted, open: map[int64]bool{}}
	for _, txn := range c.aborted {
		if txn.FirstOffset < s.from {
			if s.early == nil {
				s.early = map[int64]struct{}{}
			}
			s.early[txn.FirstOffset] = struct{}{}
		}
	}
}

// overtaken goes on at the log start if that moved beyond us.
func (s *stream) overtaken(ctx context.Context) error {
	b := s.side.bounds(ctx, []kafka.TP{s.tp})[s.tp]
	if b.err != nil {
		return b.err
	}
	if b.start <= s.next {
		return mirror.Errorf(mirror.Retriable, "read %s: offset %d was readable, now the log ends at %d", s.tp, s.next, b.hw)
	}
	s.from, s.next = b.start, b.start
	return nil
}

// cut takes the next batch off the chunk and opens it.
func (s *stream) cut() error {
	b, rest, err := recordbatch.Cut(s.rest)
	if errors.Is(err, recordbatch.ErrPartial) && s.batches > 0 {
		s.rest = nil
		return nil
	}
	if err != nil {
		return err
	}
	s.rest, s.batches = rest, s.batches+1
	if b.LastOffset() < s.next {
		s.txns.see(b, s.codec)
		return nil
	}
	if s.sure && b.BaseOffset() >= s.decided { // undecided data is read by another kind of fetch
		s.rest = nil
		s.next = max(s.next, s.decided)
		return nil
	}
	return s.begin(b)
}

// begin opens a batch.
func (s *stream) begin(b recordbatch.Batch) (err error) {
	if s.onBatch != nil {
		s.onBatch(b)
	}
	s.aborted, s.producer = s.txns.see(b, s.codec), b.ProducerID()
	if !b.IsControl() {
		if s.open, err = b.Open(s.codec); err != nil {
			return err
		}
	}
	s.least, s.next = s.next, b.NextOffset()
	return nil
}

// abortedTxns tells which batches of a read_committed answer belong to aborted transactions, as a consumer does.
type abortedTxns struct {
	listed []kafka.AbortedTxn
	open   map[int64]bool // producer ids
}

// see takes the batches of an answer in order and reports whether b is aborted data.
func (t *abortedTxns) see(b recordbatch.Batch, c recordbatch.Codec) bool {
	for len(t.listed) > 0 && t.listed[0].FirstOffset <= b.LastOffset() {
		t.open[t.listed[0].ProducerID] = true
		t.listed = t.listed[1:]
	}
	if !b.IsControl() {
		return b.IsTransactional() && t.open[b.ProducerID()]
	}
	if m, err := b.Marker(c); err == nil && !m.Commit {
		delete(t.open, b.ProducerID())
	}
	return false
}
