package fetcher

import (
	"encoding/binary"
	"fmt"
	"slices"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// modelBroker is one partition of a broker as far as protocol R1–R11 relies on it: the producer-state rules that were
// found on real brokers, and nothing else.
type modelBroker struct {
	log       []string // per offset: what a consumer gets; "": nothing
	producers map[int64]*modelProducer
}

type modelProducer struct {
	epoch       int16
	last        int32 // −1: none of this epoch
	recent      []modelBatch
	coordinator int32
}

type modelBatch struct {
	first, last int32
	offset      int64
}

func newModelBroker() *modelBroker { return &modelBroker{producers: map[int64]*modelProducer{}} }

// produce appends a batch or answers like a broker.
func (b *modelBroker) produce(batch recordbatch.Batch) answer {
	if err := batch.CheckCRC(); err != nil {
		return answer{verdict: damaged, err: err}
	}
	id, epoch, first := batch.ProducerID(), batch.ProducerEpoch(), batch.BaseSequence()
	last := int32((int64(first) + int64(batch.Count()) - 1) & 0x7fffffff)
	p := b.producers[id]
	switch {
	case p == nil: // no memory: any sequence is taken
		p = &modelProducer{coordinator: -1}
		b.producers[id] = p
	case epoch < p.epoch:
		return answer{verdict: refused, err: fmt.Errorf("invalid producer epoch %d, have %d", epoch, p.epoch)}
	case epoch > p.epoch:
		if first != 0 {
			return answer{verdict: refused, err: fmt.Errorf("out of order: new epoch begins at %d", first)}
		}
		*p = modelProducer{coordinator: p.coordinator}
	default:
		for _, r := range p.recent {
			if r.first == first && r.last == last {
				return answer{verdict: stored, base: r.offset, appendTime: batch.MaxTimestamp()}
			}
		}
		if first != nextSequence(p.last) {
			return answer{verdict: refused, err: fmt.Errorf("out of order: %d after %d", first, p.last)}
		}
	}
	base := int64(len(b.log))
	p.epoch, p.last = epoch, last
	p.recent = append(p.recent, modelBatch{first, last, base})
	if len(p.recent) > maxFlight {
		p.recent = p.recent[1:]
	}
	batch.Records(kafka.Codec, func(r recordbatch.Record) error {
		b.log = append(b.log, string(r.Key)+"="+string(r.Value))
		return nil
	})
	return answer{verdict: stored, base: base, appendTime: -1}
}

// marker appends a control record.
func (b *modelBroker) marker(o producer, coordinator int32) error {
	p := b.producers[o.id]
	switch {
	case p == nil:
		p = &modelProducer{epoch: o.epoch, last: -1, coordinator: -1}
		b.producers[o.id] = p
	case o.epoch < p.epoch:
		return fmt.Errorf("invalid producer epoch %d, have %d", o.epoch, p.epoch)
	case coordinator < p.coordinator:
		return fmt.Errorf("coordinator fenced: %d, have %d", coordinator, p.coordinator)
	case o.epoch > p.epoch:
		p.epoch, p.last, p.recent = o.epoch, -1, nil
	}
	p.coordinator = coordinator
	b.log = append(b.log, markerText(o))
	return nil
}

// markerText is what a marker leaves: nothing if it is a filler, a transaction's end otherwise.
func markerText(o producer) string {
	if o.id >= mirror.IdentityProducerIDs {
		return ""
	}
	return fmt.Sprintf("end of %d/%d", o.id, o.epoch)
}

// stranger appends a record under no identity of ours.
func (b *modelBroker) stranger() { b.log = append(b.log, "stranger") }

// describe lists the producers like DescribeProducers does.
func (b *modelBroker) describe() (ps []kafka.Producer) {
	for id, p := range b.producers {
		ps = append(ps, kafka.Producer{ID: id, Epoch: p.epoch, LastSequence: p.last, CoordinatorEpoch: p.coordinator, TxnStart: -1})
	}
	return ps
}

// forget is the expiry of producer state.
func (b *modelBroker) forget() { clear(b.producers) }

// modelSource is a source log: whole batches as a fetch gives them, and what a consumer gets per offset.
type modelSource struct {
	batches []recordbatch.Batch
	log     []string
	gone    map[int]string // what the cleaner took, by offset
	exact   bool           // the destination gets transactions as they are
}

// agrees reports whether the destination may hold v at an offset.
func (s *modelSource) agrees(offset int, v string) bool {
	if offset >= len(s.log) {
		return false
	}
	was, ok := s.gone[offset]
	return s.log[offset] == v || ok && was == v
}

// compact takes a whole batch at or above an offset away.
func (s *modelSource) compact(from int64, which int) {
	i := slices.IndexFunc(s.batches, func(b recordbatch.Batch) bool { return b.BaseOffset() >= from })
	if i < 0 || s.exact {
		return
	}
	i += which % (len(s.batches) - i)
	b := s.batches[i]
	for o := b.BaseOffset(); o < b.NextOffset(); o++ {
		s.gone[int(o)], s.log[o] = s.log[o], ""
	}
	s.batches = slices.Delete(s.batches, i, i+1)
}

func (s *modelSource) end() int64 { return int64(len(s.log)) }

// data appends a batch of n records.
func (s *modelSource) data(n int, at int64) {
	s.batch(s.build(n, at, func(int) bool { return true }), n)
}

// holed appends a batch from which the cleaner took some records.
func (s *modelSource) holed(n int, at int64, keep func(int) bool) {
	s.batch(s.build(n, at, keep), n)
}

// gap: the cleaner has taken whole batches.
func (s *modelSource) gap(n int) { s.log = append(s.log, make([]string, n)...) }

// marker appends a control batch.
func (s *modelSource) marker(id int64, epoch int16, commit bool) {
	kind := uint16(0)
	if commit {
		kind = 1
	}
	key, value := binary.BigEndian.AppendUint16([]byte{0, 0}, kind), []byte{0, 0, 0, 0, 0, 7}
	b, err := recordbatch.Build(kafka.Codec, recordbatch.CodecNone, recordbatch.Record{Timestamp: 1000, Key: key, Value: value})
	if err != nil {
		panic(err)
	}
	header(b, id, epoch, 0x30)
	s.batch(b, 1)
	if s.exact {
		shifted, _ := shiftProducer(id, 0)
		s.log[len(s.log)-1] = markerText(producer{shifted, epoch})
	}
}

// transactional appends a batch of a transaction.
func (s *modelSource) transactional(id int64, epoch int16, n int, void bool) {
	b := s.build(n, 1000, func(int) bool { return true })
	header(b, id, epoch, 0x10)
	s.batch(b, n)
	if void {
		clear(s.log[len(s.log)-n:])
	}
}

// build makes a batch at the log's end and adds what consumers get.
func (s *modelSource) build(n int, at int64, keep func(int) bool) recordbatch.Batch {
	base := s.end()
	var records []recordbatch.Record
	for i := range n {
		offset := base + int64(i)
		if !keep(i) {
			s.log = append(s.log, "")
			continue
		}
		r := recordbatch.Record{Offset: int64(i), Timestamp: at, Key: fmt.Appendf(nil, "k%d", offset), Value: fmt.Appendf(nil, "v%d", offset)}
		records = append(records, r)
		s.log = append(s.log, string(r.Key)+"="+string(r.Value))
	}
	if len(records) == 0 {
		return emptied()
	}
	b, err := recordbatch.Build(kafka.Codec, recordbatch.CodecNone, records...)
	if err != nil {
		panic(err)
	}
	return b
}

// emptied is a batch of which the cleaner left only the header.
func emptied() recordbatch.Batch {
	b, err := recordbatch.Build(kafka.Codec, recordbatch.CodecNone, recordbatch.Record{Timestamp: 1000})
	if err != nil {
		panic(err)
	}
	b = b[:61:61]
	binary.BigEndian.PutUint32(b[8:], 61-12)
	binary.BigEndian.PutUint32(b[57:], 0)
	binary.BigEndian.PutUint32(b[23:], 0x7fffffff) // differs from any length, so that batch seals it
	return b
}

// batch places a batch of n offsets whose last is the log's end.
func (s *modelSource) batch(b recordbatch.Batch, n int) {
	if b.IsControl() {
		s.log = append(s.log, "")
	}
	first := b.BaseOffset() // as built: how many records are missing at the front
	binary.BigEndian.PutUint64(b, uint64(s.end()-int64(n)+first))
	binary.BigEndian.PutUint32(b[12:], 3) // leader epoch
	if last := n - 1 - int(first); int(b.LastOffsetDelta()) != last {
		binary.BigEndian.PutUint32(b[23:], uint32(last)) // as the cleaner leaves it
		seal(b)
	}
	s.batches = append(s.batches, b)
}

// header sets producer and attributes.
func header(b recordbatch.Batch, id int64, epoch int16, attributes uint16) {
	binary.BigEndian.PutUint16(b[21:], attributes|b.Attributes())
	binary.BigEndian.PutUint64(b[43:], uint64(id))
	binary.BigEndian.PutUint16(b[51:], uint16(epoch))
	seal(b)
}

// fetch gives up to n batches from the one that holds or follows an offset, like a broker.
func (s *modelSource) fetch(at int64, n int) (b []byte) {
	for _, batch := range s.batches {
		if batch.NextOffset() > at && n > 0 {
			b = append(b, batch...)
			n--
		}
	}
	return b
}
