package compare

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// fakeLog is a partition of a cluster as a broker would answer for it.
type fakeLog struct {
	batches  []recordbatch.Batch
	start    int64
	hw       int64 // −1: the log end
	end      int64
	open     map[int64]int64 // producer id → first offset
	finished []finished
	err      error
	compact  bool
	lz4      bool // write compressed
	epochs   map[int32]int64
	native   string
	looks    int // how often bounds were asked
	onLook   func(*fakeLog, int)
	onRead   func(*fakeLog)
}

type finished struct {
	producer, first, last int64
	commit                bool
}

func newLog() *fakeLog { return &fakeLog{hw: -1, open: map[int64]int64{}} }

// compressedLog is newLog of a producer that compresses.
func compressedLog() *fakeLog {
	l := newLog()
	l.lz4 = true
	return l
}

// fake is a cluster of such logs.
type fake struct {
	mu   sync.Mutex // guards all
	logs map[string]*fakeLog
	// reads counts requests, largest is the most bytes in one answer.
	reads, largest int
}

func (f *fake) log(tp kafka.TP) *fakeLog {
	if l := f.logs[tp.String()]; l != nil {
		return l
	}
	return &fakeLog{err: kerr.UnknownTopicOrPartition}
}

func (l *fakeLog) high() int64 {
	if l.hw >= 0 {
		return l.hw
	}
	return l.end
}

func (l *fakeLog) lso() int64 {
	lso := l.high()
	for _, first := range l.open {
		lso = min(lso, first)
	}
	return lso
}

func (f *fake) bounds(_ context.Context, tps []kafka.TP) map[kafka.TP]bounds {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[kafka.TP]bounds{}
	for _, tp := range tps {
		l := f.log(tp)
		l.looks++
		if l.onLook != nil {
			l.onLook(l, l.looks)
		}
		all[tp] = bounds{start: l.start, lso: l.lso(), hw: l.high(), leo: l.end, err: l.err}
	}
	return all
}

func (f *fake) read(_ context.Context, at []position, limit int32) []chunk {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	left := int(limit)
	chunks := make([]chunk, len(at))
	total := 0
	for i, p := range at {
		l := f.log(p.tp)
		if l.onRead != nil {
			l.onRead(l)
		}
		chunks[i] = l.chunk(p, min(left, int(p.maxBytes)), total == 0)
		left -= len(chunks[i].bytes)
		total += len(chunks[i].bytes)
	}
	f.largest = max(f.largest, total)
	return chunks
}

func (l *fakeLog) chunk(p position, room int, whole bool) chunk {
	limit := l.high()
	if p.committed {
		limit = l.lso()
	}
	if p.offset < l.start || p.offset > l.end {
		return chunk{err: kerr.OffsetOutOfRange, limit: -1}
	}
	c := chunk{limit: limit, err: l.err}
	upper := p.offset
	for _, b := range l.batches {
		if b.LastOffset() < p.offset || b.BaseOffset() >= limit {
			continue
		}
		if len(b) > room && (!whole || len(c.bytes) > 0) {
			c.bytes = append(c.bytes, b[:max(room, 0)]...)
			break
		}
		c.bytes = append(c.bytes, b...)
		room -= len(b)
		upper = b.NextOffset()
	}
	if p.committed {
		for _, txn := range l.finished {
			if !txn.commit && txn.last >= p.offset && txn.first < upper {
				c.aborted = append(c.aborted, kafka.AbortedTxn{ProducerID: txn.producer, FirstOffset: txn.first})
			}
		}
		slices.SortFunc(c.aborted, func(a, b kafka.AbortedTxn) int { return int(a.FirstOffset - b.FirstOffset) })
	}
	return c
}

func (f *fake) compacted(_ context.Context, topic string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, l := range f.logs {
		if len(name) > len(topic) && name[:len(topic)] == topic && l.compact {
			return true, nil
		}
	}
	return false, nil
}

func (f *fake) epochEnd(_ context.Context, tp kafka.TP, epoch int32) (int64, error) {
	if end, ok := f.log(tp).epochs[epoch]; ok {
		return end, nil
	}
	return -1, nil
}

func (f *fake) nativeTxn(_ context.Context, tp kafka.TP) (string, error) {
	return f.log(tp).native, nil
}

// rec is a record with a time that tells where it was written first.
func rec(offset int64, value string) recordbatch.Record {
	return recordbatch.Record{Offset: offset, Timestamp: 1_700_000_000_000 + offset, Key: fmt.Appendf(nil, "k%d", offset), Value: []byte(value)}
}

// write appends n plain records, per batch of them at a time.
func (l *fakeLog) write(n, per int, value string) *fakeLog {
	for n > 0 {
		var records []recordbatch.Record
		for range min(n, per) {
			records = append(records, rec(l.end+int64(len(records)), value))
		}
		l.append(records...)
		n -= len(records)
	}
	return l
}

// append adds a batch of records that begin at the log's end.
func (l *fakeLog) append(records ...recordbatch.Record) *fakeLog {
	codec := recordbatch.CodecNone
	if l.lz4 {
		codec = recordbatch.CodecLZ4
	}
	b, err := recordbatch.Build(kafka.Codec, codec, records...)
	if err != nil {
		panic(err)
	}
	l.add(b)
	return l
}

func (l *fakeLog) add(b recordbatch.Batch) {
	l.batches = append(l.batches, b)
	l.end = b.NextOffset()
}

// txn appends transactional records of a producer.
func (l *fakeLog) txn(producer int64, n int, value string) *fakeLog {
	if _, ok := l.open[producer]; !ok {
		l.open[producer] = l.end
	}
	l.write(n, n, value)
	l.mark(l.batches[len(l.batches)-1], producer, 0x10)
	return l
}

// done ends a transaction by a marker; without one it is a filler.
func (l *fakeLog) done(producer int64, commit bool) *fakeLog {
	if first, ok := l.open[producer]; ok {
		l.finished = append(l.finished, finished{producer, first, l.end, commit})
		delete(l.open, producer)
	}
	kind := []byte{0, 0, 0, 0}
	if commit {
		kind[3] = 1
	}
	b, err := recordbatch.Build(nil, recordbatch.CodecNone, recordbatch.Record{Offset: l.end, Key: kind, Value: make([]byte, 6)})
	if err != nil {
		panic(err)
	}
	l.mark(b, producer, 0x30)
	l.add(b)
	return l
}

// hole appends n fillers.
func (l *fakeLog) hole(n int) *fakeLog {
	for range n {
		l.done(1<<62, false)
	}
	return l
}

func (l *fakeLog) mark(b recordbatch.Batch, producer int64, flags byte) {
	b[22] |= flags
	binary.BigEndian.PutUint64(b[43:], uint64(producer))
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
}

// clean removes the records that drop names, as a cleaner does.
func (l *fakeLog) clean(drop func(recordbatch.Record) bool) *fakeLog {
	l.compact = true
	var kept []recordbatch.Batch
	for _, b := range l.batches {
		var left []recordbatch.Record
		if err := b.Records(kafka.Codec, func(r recordbatch.Record) error {
			if !drop(r) {
				r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
				left = append(left, r)
			}
			return nil
		}); err != nil {
			panic(err)
		}
		if len(left) > 0 {
			b, err := recordbatch.Build(kafka.Codec, recordbatch.CodecNone, left...)
			if err != nil {
				panic(err)
			}
			kept = append(kept, b)
		}
	}
	l.batches = kept
	return l
}

// trim moves the log start.
func (l *fakeLog) trim(to int64) *fakeLog {
	l.start = to
	l.batches = slices.DeleteFunc(l.batches, func(b recordbatch.Batch) bool { return b.LastOffset() < to })
	return l
}

// couple is a pair of clusters with logs of topic t.
type couple struct {
	t        *testing.T
	src, dst *fake
	targets  []mirror.Target
}

func newCouple(t *testing.T) *couple {
	return &couple{t, &fake{logs: map[string]*fakeLog{}}, &fake{logs: map[string]*fakeLog{}}, nil}
}

// add puts a partition on both sides.
func (c *couple) add(src, dst *fakeLog) {
	i := int32(len(c.targets))
	name := fmt.Sprintf("t-%d", i)
	c.src.logs[name], c.dst.logs[name] = src, dst
	c.targets = append(c.targets, mirror.Target{Partition: mirror.Partition{Mirror: "east", Index: i}, Topic: "t", Source: mirror.NoPosition})
}

func (c *couple) align(lme mirror.Position) []Alignment {
	return alignAll(c.t.Context(), pairs(c.src, c.dst, kafka.Codec, c.targets), func(int) mirror.Position { return lme })
}

func alignOne(t *testing.T, src, dst *fakeLog) Alignment {
	t.Helper()
	c := newCouple(t)
	c.add(src, dst)
	return c.align(mirror.NoPosition)[0]
}
