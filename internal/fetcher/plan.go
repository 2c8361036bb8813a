package fetcher

import (
	"errors"
	"fmt"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// planner says what each fetched batch becomes. It is pure: the same bytes give the same items.
type planner struct {
	codec recordbatch.Codec
	exact bool // transactions as they are; otherwise decided data only
	slot  int8 // of shifted producer ids
	// open are the transactions that are open at the destination: also in committed mode their markers are replayed, for
	// their first part was copied in exact mode and must be decided.
	open map[int64]openTxn
	// budget is charged for batches that had to be made anew.
	budget *budget
}

// fetched is one partition's part of a fetch answer.
type fetched struct {
	records []byte
	aborted []kafka.AbortedTxn // by first offset
	bound   int64              // the high watermark: no batch reaches beyond; −1: unknown
	arrived int64
	hold    *hold // memory of records; each item that aliases it keeps a reference of its own
}

// errDamaged marks bytes that no healthy log holds: to be fetched again.
var errDamaged = errors.New("damaged batch")

// errBeyond marks a batch above the high watermark of its answer. A broker reads the high watermark a moment before the
// records, so this is usual; the next answer tells whether it is true.
var errBeyond = errors.New("batch above the high watermark")

// plan cuts an answer from offset next on into items that follow each other without a gap. Items before an error are good; an
// error that is errDamaged is about the batch at the offset after them.
func (p planner) plan(next int64, f fetched) ([]item, error) {
	s := planning{planner: p, fetched: f, next: next}
	for rest := f.records; len(rest) > 0; {
		b, r, err := recordbatch.Cut(rest)
		if errors.Is(err, recordbatch.ErrPartial) {
			break
		}
		if err == nil {
			err = s.check(b)
		}
		if err == nil {
			s.remember()
			err = s.batch(b)
		}
		if errors.Is(err, recordbatch.ErrCorrupt) {
			err = fmt.Errorf("%w: %w", errDamaged, err)
		}
		if err != nil {
			return s.items, fmt.Errorf("batch at offset %d: %w", s.next, err)
		}
		rest = r
	}
	return s.items, nil
}

// planning is the state of one plan.
type planning struct {
	planner
	fetched
	next   int64
	last   int64 // next offset of the batch before
	items  []item
	void   map[int64]bool // producers whose transaction is aborted, at the current batch
	before stand
}

// stand is where a plan stood before its latest batch.
type stand struct {
	items  int
	next   int64
	lastTo int64 // of the last item, which a hole may have made longer
}

func (s *planning) remember() {
	s.before = stand{items: len(s.items), next: s.next}
	if n := len(s.items); n > 0 {
		s.before.lastTo = s.items[n-1].to
	}
}

// undo takes back what the latest batch gave.
func (s *planning) undo() {
	for i := range s.items[s.before.items:] {
		s.items[s.before.items+i].hold.drop()
	}
	if s.items = s.items[:s.before.items]; len(s.items) > 0 {
		s.items[len(s.items)-1].to = s.before.lastTo
	}
	s.next = s.before.next
}

// check demands that batches rise and end at the high watermark at the latest. Base offset and length are not covered by
// a batch's CRC: a damaged one must never look like a hole. Of two batches that overlap either may be the damaged one.
func (s *planning) check(b recordbatch.Batch) error {
	if err := b.Validate(); err != nil {
		return err
	}
	base, next := b.BaseOffset(), b.NextOffset()
	if base < s.last {
		s.undo()
		return fmt.Errorf("%w: offsets %d to %d after %d", recordbatch.ErrCorrupt, base, next, s.last)
	}
	if s.bound >= 0 && next > s.bound {
		return fmt.Errorf("%w: offsets %d to %d, high watermark %d", errBeyond, base, next, s.bound)
	}
	s.last = next
	return nil
}

func (s *planning) batch(b recordbatch.Batch) error {
	end := b.NextOffset()
	void := s.decide(b)
	if end <= s.next { // a broker answers from the batch that holds the offset, or from before
		return nil
	}
	if b.Magic() == 2 {
		s.fill(min(max(b.BaseOffset(), s.next), end), compacted)
	}
	switch {
	case b.IsControl():
		return s.control(b)
	case b.Count() == 0:
		return s.leaveOut(b, compacted)
	case void:
		return s.leaveOut(b, aborted)
	}
	owner, err := s.owner(b)
	if err != nil {
		return err
	}
	if b.AsIs() && b.BaseOffset() == s.next {
		s.add(item{kind: data, to: end, batch: b, hold: s.hold.keep(), maxTime: b.MaxTimestamp(), epoch: b.LeaderEpoch(), owner: owner})
		return nil
	}
	return s.recode(b, owner)
}

// decide follows the aborted transactions like a consumer does and reports whether b belongs to one.
func (s *planning) decide(b recordbatch.Batch) bool {
	if s.exact || !b.IsTransactional() {
		return false
	}
	for len(s.aborted) > 0 && s.aborted[0].FirstOffset <= b.LastOffset() {
		if s.void == nil {
			s.void = map[int64]bool{}
		}
		s.void[s.aborted[0].ProducerID] = true
		s.aborted = s.aborted[1:]
	}
	if !b.IsControl() {
		return s.void[b.ProducerID()]
	}
	if len(s.void) > 0 {
		if m, err := b.Marker(s.codec); err == nil && !m.Commit {
			delete(s.void, m.ProducerID)
		}
	}
	return false
}

// control: the marker of a transaction that was copied as it is, if only in part, is replayed; everything else of that
// kind is a hole.
func (s *planning) control(b recordbatch.Batch) error {
	if !s.exact && len(s.open) == 0 || b.ProducerID() >= mirror.IdentityProducerIDs {
		return s.leaveOut(b, control)
	}
	m, err := b.Marker(s.codec)
	if err != nil && !errors.Is(err, recordbatch.ErrNoMarker) {
		return err
	}
	if err != nil || b.NextOffset() != s.next+1 {
		return s.leaveOut(b, control)
	}
	id, err := shiftProducer(m.ProducerID, s.slot)
	if _, open := s.open[id]; !s.exact && !open {
		return s.leaveOut(b, control)
	}
	if err != nil {
		return err
	}
	s.add(item{kind: ending, to: b.NextOffset(), commit: m.Commit, maxTime: -1, epoch: b.LeaderEpoch(), owner: producer{id, m.ProducerEpoch}})
	return nil
}

// leaveOut makes a hole of a batch. Its header is believed only if its CRC is right: nothing may vanish by a flipped bit.
func (s *planning) leaveOut(b recordbatch.Batch, why reason) error {
	if err := b.CheckCRC(); err != nil {
		return err
	}
	s.fill(b.NextOffset(), why)
	return nil
}

func (s *planning) owner(b recordbatch.Batch) (producer, error) {
	if !s.exact || !b.IsTransactional() {
		return producer{}, nil
	}
	id, err := shiftProducer(b.ProducerID(), s.slot)
	return producer{id, b.ProducerEpoch()}, err
}

// recode encodes a batch again that cannot pass as it is: holes inside, straddling the log end (protocol R5),
// LogAppendTime, an old format.
func (s *planning) recode(b recordbatch.Batch, owner producer) error {
	runs, err := b.Recode(s.codec, s.next, b.NextOffset())
	if errors.Is(err, recordbatch.ErrInflates) {
		return mirror.Errorf(mirror.CorruptSource, "offset %d has to be encoded again: %w", s.next, err).
			WithHint("nothing was skipped; if nobody needs the batch, delete the source's records up to its end, then recover")
	}
	if err != nil {
		return err
	}
	for _, r := range runs {
		s.fill(r.Base, compacted)
		s.add(item{
			kind: data, to: r.NextOffset(), batch: r.Batch, hold: newHold(s.budget, int64(len(r.Batch)), nil),
			maxTime: r.MaxTimestamp, epoch: b.LeaderEpoch(), owner: owner,
		})
	}
	s.fill(b.NextOffset(), compacted)
	return nil
}

// fill makes a hole up to an offset; none if that is where we are.
func (s *planning) fill(to int64, why reason) {
	if to <= s.next {
		return
	}
	if n := len(s.items); n > 0 && s.items[n-1].kind == hole && s.items[n-1].reason == why {
		s.items[n-1].to, s.next = to, to
		return
	}
	s.add(item{kind: hole, reason: why, to: to, maxTime: -1, epoch: -1})
}

func (s *planning) add(i item) {
	i.from, i.arrived = s.next, s.arrived
	s.items = append(s.items, i)
	s.next = i.to
}
