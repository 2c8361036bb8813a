package recordbatch

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"
)

// gather are the records of runs at their absolute offsets.
func gather(t require, runs []Run) (all []Record) {
	t.Helper()
	for _, r := range runs {
		if !r.Batch.AsIs() || r.Batch.Validate() != nil || r.Batch.BaseOffset() != 0 || r.Batch.ProducerID() != -1 {
			t.Fatalf("run at %d cannot be produced", r.Base)
		}
		if r.Batch.Count() != r.Count || r.Batch.MaxTimestamp() != r.MaxTimestamp {
			t.Fatalf("run at %d says %d records up to %d", r.Base, r.Count, r.MaxTimestamp)
		}
		all = append(all, shifted(collect(t, r.Batch), r.Base)...)
	}
	return all
}

// wantStretches checks that runs never touch: holes lie between.
func wantStretches(t require, runs []Run) {
	t.Helper()
	for i := 1; i < len(runs); i++ {
		if runs[i].Base <= runs[i-1].NextOffset() {
			t.Fatalf("run at %d follows one that ends at %d", runs[i].Base, runs[i-1].NextOffset())
		}
	}
}

func TestR5_RecodeKeepsEveryRecordOfTheRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t, 1000, 3)
		b := must(Build(codec, rapid.Uint8Range(0, 4).Draw(t, "codec"), records...))
		from := rapid.Int64Range(995, 1030).Draw(t, "from")
		to := from + rapid.Int64Range(0, 40).Draw(t, "size")
		var want []Record
		for _, r := range records {
			if r.Offset >= from && r.Offset < to {
				want = append(want, r)
			}
		}
		runs, err := b.Recode(codec, from, to)
		if err != nil {
			t.Fatalf("recode: %v", err)
		}
		wantStretches(t, runs)
		wantSame(t, gather(t, runs), want)
		for _, r := range runs {
			if r.Batch.Codec() != b.Codec() {
				t.Fatalf("codec %d became %d", b.Codec(), r.Batch.Codec())
			}
		}
	})
}

func TestRecodeMakesLogAppendTimeCreateTime(t *testing.T) {
	b := must(Build(nil, CodecNone, Record{Offset: 3, Timestamp: 50}, Record{Offset: 4, Timestamp: 10}))
	setAttributes(b, logAppendTime|transactional)
	runs, err := b.Recode(nil, 0, 100)
	if err != nil || len(runs) != 1 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	if got := runs[0].Batch; got.IsLogAppendTime() || !got.IsTransactional() {
		t.Errorf("attributes are %#x", got.Attributes())
	}
	wantSame(t, gather(t, runs), []Record{{Offset: 3, Timestamp: 50}, {Offset: 4, Timestamp: 50}})
}

func TestRecodeRefusesDamageAndControl(t *testing.T) {
	b := must(Build(nil, CodecNone, tenRecords(0, 9)...))
	b[len(b)-1] ^= 1
	if _, err := b.Recode(nil, 0, 100); !errors.Is(err, ErrCorrupt) {
		t.Errorf("damaged batch: %v", err)
	}
	c := setAttributes(must(Build(nil, CodecNone, Record{})), control)
	if _, err := c.Recode(nil, 0, 100); err == nil {
		t.Error("a control batch was encoded as data")
	}
}

func TestRecodeConvertsOldMessages(t *testing.T) {
	key, value := []byte("k"), []byte("v")
	for name, c := range map[string]struct {
		b    Batch
		want []Record
	}{
		"v0":      {oldMessage(0, 0, Record{Offset: 7, Key: key, Value: value}), []Record{{Offset: 7, Timestamp: -1, Key: key, Value: value}}},
		"v0 null": {oldMessage(0, 0, Record{Offset: 7}), []Record{{Offset: 7, Timestamp: -1}}},
		"v1":      {oldMessage(1, 0, Record{Offset: 7, Timestamp: 33, Value: []byte{}}), []Record{{Offset: 7, Timestamp: 33, Value: []byte{}}}},
	} {
		runs, err := c.b.Recode(codec, 0, 100)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantSame(t, gather(t, runs), c.want)
	}
}

// wrap compresses messages into one.
func wrap(magic int8, attributes byte, offset, timestamp int64, inner ...Record) Batch {
	var set []byte
	for _, r := range inner {
		set = append(set, oldMessage(magic, 0, r)...)
	}
	payload := must(codec.Compress(CodecGzip, set))
	return oldMessage(magic, attributes|CodecGzip, Record{Offset: offset, Timestamp: timestamp, Value: payload})
}

func TestRecodeOpensWrappers(t *testing.T) {
	a, b, c := []byte("a"), []byte("b"), []byte("c")
	relative := []Record{{Offset: 0, Timestamp: 1, Value: a}, {Offset: 1, Timestamp: 2, Value: b}, {Offset: 3, Timestamp: 3, Value: c}}
	absolute := shifted(relative, 40)
	untimed := shifted(relative, 40)
	stamped := shifted(relative, 40)
	for i := range untimed {
		untimed[i].Timestamp, stamped[i].Timestamp = -1, 99
	}
	for name, c := range map[string]struct {
		b    Batch
		want []Record
	}{
		"v1, relative offsets":    {wrap(1, 0, 43, 3, relative...), absolute},
		"v1, absolute offsets":    {wrap(1, 0, 43, 3, absolute...), absolute},
		"v1, log append time":     {wrap(1, byte(logAppendTime), 43, 99, relative...), stamped},
		"v0, absolute offsets":    {wrap(0, 0, 43, 0, absolute...), untimed},
		"v1, cleaned at its head": {wrap(1, 0, 43, 3, relative[2]), absolute[2:]},
	} {
		runs, err := c.b.Recode(codec, 0, 100)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantStretches(t, runs)
		wantSame(t, gather(t, runs), c.want)
	}
}

func TestBrokenWrappersAreCorrupt(t *testing.T) {
	one := Record{Offset: 0, Value: []byte("a")}
	nested := must(codec.Compress(CodecGzip, wrap(1, 0, 0, 0, one)))
	for name, b := range map[string]Batch{
		"no value":       oldMessage(1, CodecGzip, Record{Offset: 4}),
		"no messages":    wrap(1, 0, 4, 0),
		"nested":         oldMessage(1, CodecGzip, Record{Offset: 4, Value: nested}),
		"offsets fall":   wrap(0, 0, 9, 0, Record{Offset: 8}, Record{Offset: 8}),
		"offsets beyond": wrap(0, 0, 9, 0, Record{Offset: 10}),
		"before zero":    wrap(1, 0, 2, 0, Record{Offset: 0}, Record{Offset: 5}),
	} {
		if _, err := b.Recode(codec, 0, 100); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
	}
}

// A small batch that inflates to very much passes through a window, into runs that each hold a little of it.
func TestRecodeOfWhatInflatesToVeryMuch(t *testing.T) {
	var records []Record
	for i := range int64(20) {
		records = append(records, Record{Offset: 7 + i, Timestamp: i, Key: []byte{byte(i)}, Value: make([]byte, 1<<20)})
	}
	for _, codec := range []Codec{codec, testCodec{64 << 20, 64 << 20}} {
		b := must(Build(codec, CodecZstd, records...))
		runs, err := b.Recode(codec, 9, 26)
		if err != nil {
			t.Fatal(err)
		}
		wantSame(t, gather(t, runs), records[2:19])
		if len(runs) != 2 {
			t.Errorf("%d runs", len(runs))
		}
		for i := 1; i < len(runs); i++ {
			if runs[i].Base != runs[i-1].NextOffset() {
				t.Errorf("run at %d follows one that ends at %d", runs[i].Base, runs[i-1].NextOffset())
			}
		}
	}
}

// What inflates beyond all bounds is refused before it takes memory: by what a record claims, and by the sum.
func TestBombs(t *testing.T) {
	for size, most := range map[int]int64{MaxRecord: 1, 4 << 20: MaxInflated / (4 << 20)} {
		content := records(size)
		b := must(Build(codec, CodecZstd, tenRecords(3, 5)...))
		binary.BigEndian.PutUint32(b[atCount:], 1<<20)
		binary.BigEndian.PutUint32(b[atLastOffsetDelta:], 1<<20)
		b.writeCRC()
		if _, err := b.Recode(bomb{codec, content}, 0, maxOffset); !errors.Is(err, ErrInflates) || content.n > most {
			t.Errorf("records of %d bytes: %d were read, %v", size, content.n, err)
		}
	}
}

// bomb is a codec to which everything inflates to the same.
type bomb struct {
	Codec
	content io.Reader
}

func (bomb) Decompress(uint8, []byte) ([]byte, error)     { return nil, ErrLarge }
func (b bomb) Inflate(uint8, []byte) (io.Reader, error)   { return b.content, nil }
func (bomb) Compress(_ uint8, src []byte) ([]byte, error) { return src[:1], nil }

// endless is records of one size without end.
type endless struct {
	fields, rest []byte
	n            int64
	inside       bool
}

func records(size int) *endless {
	return &endless{fields: appendFields(nil, Record{Value: make([]byte, size)})}
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.rest) == 0 {
		if e.inside = !e.inside; e.inside {
			head := appendRecord(nil, wireRecord{0, 0, e.n, e.fields})
			e.rest = head[:len(head)-len(e.fields)]
			e.n++
		} else {
			e.rest = e.fields
		}
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// horizonBatch is what a cleaner leaves: the time when tombstones may go stands where the first timestamp belongs.
func horizonBatch(horizon int64, records ...Record) Batch {
	var w builder
	w.begin(records[0].Offset, horizon)
	w.maxTime = 0
	for _, r := range records {
		w.append(r.Offset, r.Timestamp, 0, appendFields(nil, r))
	}
	b := must(w.finish(codec, deleteHorizon))
	binary.BigEndian.PutUint64(b, uint64(records[0].Offset))
	return b
}

// The clock of a tombstone goes on where its batch is encoded again or joined with others of the same horizon.
func TestDeleteHorizonsAreKept(t *testing.T) {
	const horizon = 1_700_000_000_000
	first := []Record{{Offset: 5, Timestamp: 400, Key: []byte("a")}, {Offset: 8, Timestamp: 300, Key: []byte("b")}}
	runs, err := horizonBatch(horizon, first...).Recode(codec, 0, maxOffset)
	if err != nil {
		t.Fatal(err)
	}
	wantSame(t, gather(t, runs), first)
	for _, r := range runs {
		if r.Batch.Attributes() != deleteHorizon || r.Batch.FirstTimestamp() != horizon {
			t.Errorf("run at %d: attributes %#x, first timestamp %d", r.Base, r.Batch.Attributes(), r.Batch.FirstTimestamp())
		}
	}
	var j Joiner
	j.Reset(1 << 20)
	second := Record{Offset: 6, Timestamp: 500, Key: []byte("c")}
	joined := j.Add(horizonBatch(horizon, first[0])) && j.Add(horizonBatch(horizon, second))
	if !joined || j.Add(horizonBatch(horizon+1, Record{Offset: 7})) {
		t.Fatalf("%d batches were joined, want those of one horizon", j.Batches())
	}
	wantSame(t, shifted(collect(t, j.Bytes()), 5), []Record{first[0], second})
	if b := j.Bytes(); b.Attributes() != deleteHorizon || b.FirstTimestamp() != horizon || b.MaxTimestamp() != 500 {
		t.Errorf("joined: attributes %#x, times %d to %d", b.Attributes(), b.FirstTimestamp(), b.MaxTimestamp())
	}
}
