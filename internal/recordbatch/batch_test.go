package recordbatch

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func TestRecordsGivesWhatBuildGot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t, rapid.Int64Range(0, 1<<50).Draw(t, "base"), 5)
		b := must(Build(codec, rapid.Uint8Range(0, 4).Draw(t, "codec"), records...))
		if err := b.Validate(); err != nil {
			t.Fatalf("validate: %v", err)
		}
		wantSame(t, collect(t, b), records)
	})
}

// An independent reader sees the same records in what Build writes.
func TestBuildAgreesWithFranzGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t, 1000, 5)
		b := must(Build(codec, rapid.Uint8Range(0, 4).Draw(t, "codec"), records...))
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.RecordBatches, rp.HighWatermark = b, 1<<60
		got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{}, &rp, kgo.DefaultDecompressor(), nil)
		if got.Err != nil || len(got.Records) != len(records) {
			t.Fatalf("%d records, %v; want %d", len(got.Records), got.Err, len(records))
		}
		for i, r := range got.Records {
			have := Record{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				have.Headers = append(have.Headers, Header{[]byte(h.Key), h.Value})
			}
			wantSame(t, []Record{have}, records[i:i+1])
		}
	})
}

func TestLogAppendTimeGivesTheBatchesTime(t *testing.T) {
	b := must(Build(nil, CodecNone, Record{Timestamp: 5}, Record{Offset: 1, Timestamp: 9}, Record{Offset: 2, Timestamp: 7}))
	setAttributes(b, logAppendTime)
	for _, r := range collect(t, b) {
		if r.Timestamp != 9 {
			t.Errorf("offset %d has time %d, want 9", r.Offset, r.Timestamp)
		}
	}
}

func TestAsIs(t *testing.T) {
	whole := func() Batch { return must(Build(nil, CodecNone, tenRecords(5, 3)...)) }
	empty := whole()
	binary.BigEndian.PutUint32(empty[atCount:], 0)
	for name, c := range map[string]struct {
		b    Batch
		want bool
	}{
		"plain":           {whole(), true},
		"transactional":   {setAttributes(whole(), transactional), true},
		"delete horizon":  {setAttributes(whole(), deleteHorizon), true},
		"control":         {setAttributes(whole(), control|transactional), false},
		"log append time": {setAttributes(whole(), logAppendTime), false},
		"hole":            {must(Build(nil, CodecNone, Record{Offset: 1}, Record{Offset: 3})), false},
		"emptied":         {empty, false},
		"format 0":        {oldMessage(0, 0, Record{Offset: 5}), false},
		"format 1":        {oldMessage(1, 0, Record{Offset: 5}), false},
	} {
		if c.b.AsIs() != c.want {
			t.Errorf("%s: AsIs is %v", name, !c.want)
		}
	}
}

func TestCutStopsAtEntries(t *testing.T) {
	one, two := must(Build(nil, CodecNone, tenRecords(0, 3)...)), oldMessage(1, 0, Record{Offset: 10, Value: []byte("v")})
	all := append(append([]byte{}, one...), two...)
	for size := range len(all) {
		b, rest, err := Cut(all[:size])
		if size < len(one) {
			if !errors.Is(err, ErrPartial) {
				t.Fatalf("%d bytes: %v, want ErrPartial", size, err)
			}
			continue
		}
		if err != nil || len(b) != len(one) || len(rest) != size-len(one) {
			t.Fatalf("%d bytes: %d and %d, %v", size, len(b), len(rest), err)
		}
		if b, _, err = Cut(rest); !errors.Is(err, ErrPartial) || b != nil {
			t.Fatalf("second entry in %d bytes: %v", len(rest), err)
		}
	}
}

func TestCutRefusesNonsense(t *testing.T) {
	for name, change := range map[string]func(Batch){
		"negative length": func(b Batch) { b[atLength] = 0x80 },
		"short length":    func(b Batch) { binary.BigEndian.PutUint32(b[atLength:], 48) },
		"negative offset": func(b Batch) { b[0] = 0x80 },
		"format 3":        func(b Batch) { b[atMagic] = 3 },
	} {
		b := must(Build(nil, CodecNone, tenRecords(0, 3)...))
		change(b)
		if _, _, err := Cut(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
	}
}

func TestValidateRefusesWhatCannotBeTrue(t *testing.T) {
	for name, change := range map[string]func(Batch){
		"count below zero":     func(b Batch) { b[atCount] = 0x80 },
		"more than offsets":    func(b Batch) { binary.BigEndian.PutUint32(b[atCount:], 11) },
		"negative last delta":  func(b Batch) { b[atLastOffsetDelta] = 0x80 },
		"more than bytes":      func(b Batch) { b[atCount], b[atLastOffsetDelta] = 0x7f, 0x7f },
		"codec 5":              func(b Batch) { b[atAttributes+1] = 5 },
		"offset over the edge": func(b Batch) { binary.BigEndian.PutUint64(b, uint64(maxOffset-3)) },
		"wrong length":         func(b Batch) { b[atLength+3]++ },
	} {
		b := must(Build(nil, CodecNone, tenRecords(0, 3)...))
		change(b)
		if err := b.Validate(); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
	}
}

func TestRecordsRefusesDamage(t *testing.T) {
	whole := must(Build(nil, CodecNone, tenRecords(0, 3)...))
	for i := headerSize; i < len(whole); i++ {
		b := append(Batch{}, whole...)
		b[i] ^= 0x10
		if err := b.Records(nil, func(Record) error { return nil }); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d changed: %v, want ErrCorrupt", i, err)
		}
	}
}

func TestBuildRefusesFallingOffsets(t *testing.T) {
	if _, err := Build(nil, CodecNone, Record{Offset: 5}, Record{Offset: 5}); err == nil {
		t.Error("two records at one offset were built")
	}
	if _, err := Build(nil, CodecNone); err == nil {
		t.Error("a batch of nothing was built")
	}
}
