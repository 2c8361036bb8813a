package recordbatch

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// Splitting records into batches in any way and joining them again gives the batch that was never split.
func TestJoinOfSplitIsIdentity(t *testing.T) {
	var j Joiner
	rapid.Check(t, func(t *rapid.T) {
		j.Reset(1 << 20)
		const base = 1 << 40
		var all []Record
		for range rapid.IntRange(1, 8).Draw(t, "batches") {
			part := drawRecords(t, base+int64(len(all)), 1)
			if !j.Add(must(Build(nil, CodecNone, part...))) {
				t.Fatalf("batch at %d was not joined", part[0].Offset)
			}
			all = append(all, part...)
		}
		got := j.Bytes()
		if !got.AsIs() || got.Validate() != nil || j.Base() != base || int(j.Count()) != len(all) || got.Count() != j.Count() {
			t.Fatalf("joined batch: base %d, count %d", j.Base(), j.Count())
		}
		want := must(Build(nil, CodecNone, all...))
		if got.MaxTimestamp() != want.MaxTimestamp() || got.MaxTimestamp() != j.MaxTimestamp() {
			t.Fatalf("largest timestamp %d, want %d", got.MaxTimestamp(), want.MaxTimestamp())
		}
		wantSame(t, shifted(collect(t, got), base), all)
		if j.NextOffset() != base+int64(len(all)) {
			t.Fatalf("next offset %d", j.NextOffset())
		}
	})
}

func TestJoinerRefuses(t *testing.T) {
	batch := func(base int64) Batch { return must(Build(nil, CodecNone, tenRecords(base, 20)...)) }
	producer := func(b Batch, id int64) Batch {
		binary.BigEndian.PutUint64(b[atProducerID:], uint64(id))
		return setAttributes(b, transactional)
	}
	damaged := batch(10)
	damaged[len(damaged)-1] ^= 1
	lying := batch(10)
	lying[headerSize+3] += 2 // offset delta of the first record
	lying.writeCRC()
	for name, b := range map[string]Batch{
		"a gap":            batch(11),
		"an overlap":       batch(9),
		"compressed":       must(Build(codec, CodecGzip, tenRecords(10, 20)...)),
		"transactional":    producer(batch(10), 5),
		"damaged":          damaged,
		"false deltas":     lying,
		"too much":         must(Build(nil, CodecNone, tenRecords(10, 4000)...)),
		"a hole":           must(Build(nil, CodecNone, Record{Offset: 10}, Record{Offset: 12})),
		"an old message":   oldMessage(1, 0, Record{Offset: 10}),
		"control":          setAttributes(batch(10), control),
		"log append times": setAttributes(batch(10), logAppendTime),
	} {
		var j Joiner
		j.Reset(2000)
		if !j.Add(batch(0)) {
			t.Fatal("the first batch was not taken")
		}
		if j.Add(b) {
			t.Errorf("%s was joined", name)
		}
		wantSame(t, collect(t, j.Bytes()), tenRecords(0, 20))
		if !j.Add(batch(10)) {
			t.Errorf("after %s the right batch was not joined", name)
		}
		wantSame(t, collect(t, j.Bytes()), append(tenRecords(0, 20), tenRecords(10, 20)...))
	}
}

func TestJoinerKeepsTransactionsApartUnlessPlain(t *testing.T) {
	batch := func(base, id int64) Batch {
		b := must(Build(nil, CodecNone, tenRecords(base, 20)...))
		binary.BigEndian.PutUint64(b[atProducerID:], uint64(id))
		return setAttributes(b, transactional)
	}
	var j Joiner
	j.Reset(10_000)
	if !j.Add(batch(0, 1)) || !j.Add(batch(10, 1)) || j.Add(batch(20, 2)) || !j.Bytes().IsTransactional() {
		t.Error("exact: batches of one producer only belong together")
	}
	j.Plain = true
	j.Reset(10_000)
	if !j.Add(batch(0, 1)) || !j.Add(batch(10, 2)) || j.Bytes().IsTransactional() {
		t.Error("plain: all belong together, without the flag")
	}
}

func TestJoinerTakesRuns(t *testing.T) {
	b := must(Build(nil, CodecNone, tenRecords(0, 20)...))
	low, high := must(b.Recode(nil, 2, 5)), must(b.Recode(nil, 5, 9))
	var j Joiner
	j.Reset(10_000)
	if !j.AddRun(low[0]) || !j.AddRun(high[0]) {
		t.Fatal("runs were not joined")
	}
	wantSame(t, shifted(collect(t, j.Bytes()), 2), tenRecords(0, 20)[2:9])
}

func TestJoinerAllocatesOnceGrown(t *testing.T) {
	one, two := must(Build(nil, CodecNone, tenRecords(0, 100)...)), must(Build(nil, CodecNone, tenRecords(10, 100)...))
	var j Joiner
	work := func() {
		j.Reset(10_000)
		if !j.Add(one) || !j.Add(two) || j.Bytes() == nil {
			t.Fatal("not joined")
		}
	}
	work()
	if n := testing.AllocsPerRun(100, work); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Ten records of 100 bytes to a batch, 64 batches to a joined one.
func BenchmarkJoin(b *testing.B) {
	var batches []Batch
	size := 0
	for i := range 64 {
		batches = append(batches, must(Build(nil, CodecNone, tenRecords(int64(i*10), 100)...)))
		size += len(batches[i])
	}
	var j Joiner
	b.ReportAllocs()
	b.SetBytes(int64(size))
	for range b.N {
		j.Reset(1 << 20)
		for _, batch := range batches {
			if !j.Add(batch) {
				b.Fatal("not joined")
			}
		}
		_ = j.Bytes()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/640, "ns/record")
}
