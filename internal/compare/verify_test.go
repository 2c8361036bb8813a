package compare

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

func (c *couple) verify(o Options) []Row {
	v := &verification{src: c.src, dst: c.dst, codec: kafka.Codec, mirror: "east", options: o, targets: c.targets}
	return v.run(c.t.Context())
}

func verifyOne(t *testing.T, src, dst *fakeLog, o Options) Row {
	t.Helper()
	c := newCouple(t)
	c.add(src, dst)
	rows := c.verify(o)
	if len(rows) != 1 {
		t.Fatalf("%d rows", len(rows))
	}
	return rows[0]
}

var full = Options{Full: true}

// S10: equal partitions, then planted records beyond the stop.
func TestVerifyFindsAPlantedDifference(t *testing.T) {
	stopped := Options{Full: true, LastMirror: func(string, int32) mirror.Position { return mirror.Position{Offset: 300} }}
	shared := func() *fakeLog { return newLog().write(300, 9, "v") }
	want := Row{Mirror: "east", Topic: "t", To: 300, Records: 300, Equal: true, FirstDifference: -1}
	for _, dst := range []*fakeLog{shared(), compressedLog().write(300, 50, "v")} {
		if got := verifyOne(t, shared(), dst, full); got != want {
			t.Errorf("equal partition: %+v", got)
		}
	}
	late := rec(300, "v")
	late.Timestamp++
	for name, planted := range map[string]recordbatch.Record{"value": rec(300, "planted"), "timestamp": late} {
		got := verifyOne(t, shared().write(1, 1, "v"), shared().append(planted), stopped)
		if got.Equal || got.FirstDifference != 300 || got.Records != 301 || got.To != 301 {
			t.Errorf("%s: %+v", name, got)
		}
		for _, word := range []string{"offset 300", name, "failback", "1 of 301"} {
			if !strings.Contains(got.Detail, word) {
				t.Errorf("%s: detail lacks %q: %s", name, word, got.Detail)
			}
		}
	}
	got := verifyOne(t, shared(), shared().write(1, 1, "tail"), stopped)
	if !got.Equal || !strings.Contains(got.Detail, "destination has 1 more") {
		t.Errorf("a tail on one side: %+v", got)
	}
}

func TestVerifyTellsEveryPartOfARecordApart(t *testing.T) {
	base := recordbatch.Record{Timestamp: 5, Key: []byte("k"), Value: []byte{}, Headers: []recordbatch.Header{{Key: []byte("h"), Value: []byte("x")}}}
	change := func(do func(*recordbatch.Record)) recordbatch.Record {
		r := base
		r.Headers = slices.Clone(base.Headers)
		do(&r)
		return r
	}
	for name, other := range map[string]recordbatch.Record{
		"timestamp":    change(func(r *recordbatch.Record) { r.Timestamp = 6 }),
		"key":          change(func(r *recordbatch.Record) { r.Key = nil }),
		"value":        change(func(r *recordbatch.Record) { r.Value = nil }),
		"headers":      change(func(r *recordbatch.Record) { r.Headers = nil }),
		"header 0":     change(func(r *recordbatch.Record) { r.Headers[0].Value = nil }),
		"no record":    {Offset: -1},
		"header key":   change(func(r *recordbatch.Record) { r.Headers[0].Key = []byte("i") }),
		"header order": change(func(r *recordbatch.Record) { r.Headers = append(r.Headers, r.Headers[0]) }),
	} {
		dst := newLog()
		if other.Offset < 0 {
			dst.hole(1)
		} else {
			dst.append(other)
		}
		got := verifyOne(t, newLog().append(base), dst, full)
		if got.Equal || got.FirstDifference != 0 {
			t.Errorf("%s: %+v", name, got)
		}
		if word := strings.Fields(name)[0]; !strings.Contains(got.Detail, word) {
			t.Errorf("%s: detail %q", name, got.Detail)
		}
	}
	if got := verifyOne(t, newLog().append(base), newLog().append(base), full); !got.Equal || got.Records != 1 {
		t.Errorf("the same record: %+v", got)
	}
}

func TestVerifySeesWhatAReadCommittedConsumerSees(t *testing.T) {
	src := newLog().txn(1, 3, "a").txn(2, 3, "b").txn(1, 3, "a").done(1, false).write(2, 2, "p").done(2, true).txn(3, 4, "open").write(2, 1, "p")
	exact := newLog().txn(1<<61, 3, "a").txn(1<<61+1, 3, "b").txn(1<<61, 3, "a").done(1<<61, false).write(2, 2, "p").done(1<<61+1, true).txn(1<<61+2, 4, "open").write(2, 1, "p")
	committed := newLog().hole(3).write(3, 3, "b").hole(4).write(2, 1, "p").hole(1)
	for name, dst := range map[string]*fakeLog{"exact": exact, "committed": committed} {
		got := verifyOne(t, src, dst, full)
		if !got.Equal || got.Records != 5 || got.To != 13 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	aborted := newLog().hole(3).txn(9, 3, "b").done(9, false).hole(3).write(2, 1, "p").hole(1)
	got := verifyOne(t, src, aborted, full)
	if got.Equal || got.FirstDifference != 3 || !strings.Contains(got.Detail, "aborted on the destination") {
		t.Errorf("committed at the source only: %+v", got)
	}
	if got := verifyOne(t, src, exact, full); !strings.Contains(got.Detail, "transaction is open") {
		t.Errorf("undecided end: %+v", got)
	}
}

// P1 on compacted topics: what a later record supersedes may be gone on either side, nothing else.
func TestVerifyJudgesCompactedTopics(t *testing.T) {
	keyed := func(keys string) *fakeLog { // one record a letter; upper case: a tombstone
		l := newLog()
		for i, k := range keys {
			r := recordbatch.Record{Offset: int64(i), Timestamp: 5, Key: []byte(strings.ToLower(string(k))), Value: []byte("v")}
			if k < 'a' {
				r.Value = nil
			}
			l.append(r)
		}
		return l
	}
	without := func(l *fakeLog, gone ...int64) *fakeLog {
		return l.clean(func(r recordbatch.Record) bool { return slices.Contains(gone, r.Offset) })
	}
	for name, c := range map[string]struct {
		src, dst *fakeLog
		equal    bool
		first    int64
		detail   string
	}{
		"either cleaned":           {without(keyed("abab"), 0), without(keyed("abab"), 1), true, -1, ""},
		"superseded in the tail":   {without(keyed("abca"), 0), without(keyed("abc")), true, -1, "1 more"},
		"tombstone gone at source": {without(keyed("aBcB"), 3), without(keyed("aBcB")), true, -1, ""},
		"tombstone gone here":      {without(keyed("abB")), without(keyed("abB"), 1, 2), true, -1, ""},
		"dead key":                 {without(keyed("abBx"), 1, 2), without(keyed("abBx"), 2), true, -1, `live on at the destination whose tombstones are gone at the source: "b"`},
		"lost":                     {without(keyed("abc")), without(keyed("abc"), 1), false, 1, `lacks the latest record of key "b"`},
		"never at the source":      {without(keyed("abcdxx"), 4), without(keyed("abcdbx")), false, 4, `the source has an older record as the latest of key "b"`},
		"a tombstone of its own":   {without(keyed("abcdxx"), 4), without(keyed("abcdBx")), false, 4, `the source has an older record as the latest of key "b"`},
		"superseded by now":        {without(keyed("abcdxxb"), 4), without(keyed("abcdbx")), true, -1, ""},
		"tombstone lost":           {without(keyed("abcdBx")), without(keyed("abcdxx"), 4), false, 4, `lacks the latest record of key "b"`},
		"dead, or never there":     {without(keyed("abcdxx"), 1, 4), without(keyed("abcdbx")), true, -1, `tombstones are gone at the source: "b"`},
	} {
		got := verifyOne(t, c.src, c.dst, full)
		if got.Equal != c.equal || got.FirstDifference != c.first || !strings.Contains(got.Detail, c.detail) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// P1, P4: what a destination alone has cleaned away is lost, and verify says by what.
func TestVerifyExcusesNothingThatOnlyTheDestinationCleans(t *testing.T) {
	src := newLog().write(100, 10, "v")
	dst := newLog().write(100, 10, "v").clean(func(r recordbatch.Record) bool { return r.Offset == 40 })
	got := verifyOne(t, src, dst, full)
	if got.Equal || got.FirstDifference != 40 || !strings.Contains(got.Detail, "the destination topic is compacted, the source's is not") {
		t.Errorf("%+v", got)
	}
	wantKind(t, alignOne(t, newLog().write(100, 10, "v"), newLog().write(100, 10, "v").clean(func(r recordbatch.Record) bool { return r.Offset == 98 })).Err, mirror.Diverged)
}

// What was cleaned while the logs were read may be superseded by what was written meanwhile.
func TestVerifyOfALiveCompactedTopic(t *testing.T) {
	src, dst := newLog().write(100, 10, "v").clean(func(recordbatch.Record) bool { return false }), newLog().write(100, 10, "v")
	dst.onRead = func(l *fakeLog) {
		if l.end == 100 {
			newest := rec(5, "new")
			newest.Offset = 100
			src.append(newest)
			l.append(newest).clean(func(r recordbatch.Record) bool { return r.Offset == 5 })
		}
	}
	if got := verifyOne(t, src, dst, full); !got.Equal {
		t.Errorf("%+v", got)
	}
}

func TestVerifyCoversWhatBothHold(t *testing.T) {
	shared := func() *fakeLog { return newLog().write(500, 7, "v") }
	got := verifyOne(t, shared().trim(20), shared().write(9, 3, "w").trim(100), full)
	want := Row{Mirror: "east", Topic: "t", From: 100, To: 500, Records: 400, Equal: true, FirstDifference: -1}
	detail := got.Detail
	got.Detail = ""
	if got != want || !strings.Contains(detail, "source begins at offset 20, the destination at 100") || !strings.Contains(detail, "9 more") {
		t.Errorf("%+v, %s", got, detail)
	}
	got = verifyOne(t, shared().trim(500), newLog().write(10, 7, "v"), full)
	if !got.Equal || got.Records != 0 {
		t.Errorf("nothing in common: %+v", got)
	}
}

func TestVerifySamplesLargeLogs(t *testing.T) {
	src, dst := newLog().write(100_000, 1000, "v"), newLog().write(100_000, 900, "v")
	got := verifyOne(t, src, dst, Options{})
	if want := int64(2*endWindow + sampleWindows*sampleWindow); !got.Equal || got.Records != want || got.To != 100_000 {
		t.Errorf("%+v, want %d records", got, want)
	}
	if !strings.Contains(got.Detail, "sample: 12000 of 100000") {
		t.Errorf("detail %q", got.Detail)
	}
	for _, at := range []int{0, 1999, 98_000, 99_999} {
		dst := newLog().write(at, 900, "v").write(1, 1, "x").write(99_999-at, 900, "v")
		if got := verifyOne(t, src, dst, Options{}); got.Equal || got.FirstDifference != int64(at) {
			t.Errorf("difference at %d: %+v", at, got)
		}
	}
	if got := verifyOne(t, src, newLog().write(100_000, 900, "w"), Options{}); got.FirstDifference != 0 {
		t.Errorf("all differs: %+v", got)
	}
}

func TestWindowsAreInOrderAndApart(t *testing.T) {
	for size := int64(wholeBelow + 1); size < 1<<40; size *= 3 {
		last := int64(7)
		for _, w := range windows(7, 7+size, false) {
			if w[0] < last || w[1] <= w[0] {
				t.Fatalf("window %v after %d of %d", w, last, size)
			}
			last = w[1]
		}
		if last != 7+size {
			t.Fatalf("windows of %d end at %d", size, last)
		}
	}
}

func TestVerifyGoesOnWhereRecordsExpire(t *testing.T) {
	src, dst := newLog(), newLog()
	src.write(60_000, 100, strings.Repeat("x", 200))
	dst.write(60_000, 100, strings.Repeat("x", 200))
	reads := 0
	src.onRead = func(l *fakeLog) {
		if reads++; reads == 2 {
			l.trim(50_000)
		}
	}
	got := verifyOne(t, src, dst, full)
	if !got.Equal || !strings.Contains(got.Detail, "below 50000 expired") {
		t.Errorf("%+v", got)
	}
}

func TestVerifyNeverCallsUnreadableEqual(t *testing.T) {
	damaged := newLog().write(300, 9, "v")
	b := damaged.batches[20]
	b[len(b)-1] ^= 1
	got := verifyOne(t, damaged, newLog().write(300, 9, "v"), full)
	if got.Equal || !strings.Contains(got.Detail, "corrupt") {
		t.Errorf("damaged batch: %+v", got)
	}
	short := newLog().write(300, 9, "v")
	looked := false
	short.onRead = func(l *fakeLog) {
		if !looked {
			looked, l.batches, l.end = true, l.batches[:5], 45
		}
	}
	if got := verifyOne(t, short, newLog().write(300, 9, "v"), full); got.Equal {
		t.Errorf("log became shorter: %+v", got)
	}
}

func TestVerifyReportsProgress(t *testing.T) {
	c := newCouple(t)
	for range 10 {
		c.add(newLog().write(50, 9, "v"), newLog().write(50, 9, "v"))
	}
	var last Progress
	rows := c.verify(Options{Full: true, Progress: func(p Progress) {
		if p.Done < last.Done || p.Records < last.Records {
			t.Errorf("progress went from %+v to %+v", last, p)
		}
		last = p
	}})
	if last.Done != 10 || last.Partitions != 10 || last.Records != 500 {
		t.Errorf("%+v", last)
	}
	for i, r := range rows {
		if int(r.Partition) != i || !r.Equal {
			t.Errorf("row %d: %+v", i, r)
		}
	}
}

func TestVerifyTellsMissingPartitions(t *testing.T) {
	v := &verification{mirror: "east"}
	v.add("t", kafka.Topic{Partitions: make([]kafka.Partition, 2)}, kafka.Topic{Partitions: make([]kafka.Partition, 1)})
	v.add("u", kafka.Topic{Partitions: make([]kafka.Partition, 1)}, kafka.Topic{Partitions: make([]kafka.Partition, 2)})
	v.add("w", kafka.Topic{}, kafka.Topic{Err: fmt.Errorf("no such topic")})
	if len(v.targets) != 2 || len(v.rows) != 3 {
		t.Fatalf("%d targets, rows %+v", len(v.targets), v.rows)
	}
	for i, equal := range []bool{true, true, false} {
		if r := v.rows[i]; r.Equal != equal || r.Detail == "" || r.FirstDifference != -1 {
			t.Errorf("%+v", r)
		}
	}
}

func TestRowFields(t *testing.T) {
	got, err := json.Marshal(Row{"east", "t", 3, 1, 2, 1, true, -1, "d"})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"mirror":"east","topic":"t","partition":3,"from":1,"to":2,"records":1,"equal":true,"firstDifference":-1,"detail":"d"}`
	if string(got) != want {
		t.Errorf("%s", got)
	}
}

// However few keys are followed at once, each is judged.
func TestSupersededJudgesEveryKeyInBoundedMemory(t *testing.T) {
	const keys = 1000
	k := newSuperseded(60)
	var lost, dead []int64
	for passes := 1; ; passes++ {
		for i := range int64(4 * keys) { // each key four times; some end on one side only
			key := i % keys
			r := item{Record: recordbatch.Record{Offset: i, Key: fmt.Appendf(nil, "%d", key), Value: []byte{}}}
			k.see(&r, i < 3*keys || key%10 < 2, key%10 == 0)
			if len(k.pending) > 60 {
				t.Fatalf("%d keys at once", len(k.pending))
			}
		}
		u := k.unmatched()
		lost, dead = append(lost, u.lost...), append(dead, u.dead...)
		if !k.again() {
			if passes < 4 {
				t.Errorf("only %d passes", passes)
			}
			break
		}
	}
	slices.Sort(lost)
	slices.Sort(dead)
	for name, got := range map[string][]int64{"lost": lost, "dead": dead} {
		if len(slices.Compact(got)) != keys/10 || len(got) != keys/10 {
			t.Errorf("%s: %d records, want %d", name, len(got), keys/10)
		}
	}
	if lost[0] != 3*keys || dead[0] != 3*keys+1 {
		t.Errorf("first lost %d, first dead %d", lost[0], dead[0])
	}
}

// What all partitions at work may hold stays within the limit, and each has enough to get on with.
func TestVerifySharesItsMemory(t *testing.T) {
	for _, limit := range []int64{16 << 20, 64 << 20, 200 << 20, 512 << 20, 8 << 30} {
		for _, partitions := range []int{1, 3, 1000} {
			v := &verification{options: Options{MemoryLimit: limit}, targets: make([]mirror.Target, partitions)}
			v.share()
			if v.workers < 1 || v.workers > partitions || v.workers > 1 && int64(v.workers)*verifyMemory > limit {
				t.Errorf("limit %d, %d partitions: %d at work", limit, partitions, v.workers)
			}
			if keys := int64(v.workers) * int64(v.keysMax) * keyBytes; keys > max(limit, verifyMemory)/2 || v.keysMax < 100_000 {
				t.Errorf("limit %d, %d partitions: %d bytes for keys, %d keys of each", limit, partitions, keys, v.keysMax)
			}
		}
	}
}

// A transaction that the source has decided is open at the destination: a difference once its marker would be there, and
// not beyond what was mirrored.
func TestVerifySeesWhatStaysUndecided(t *testing.T) {
	level := func() *fakeLog { return newLog().write(20, 5, "v") }
	open := func(l *fakeLog) *fakeLog { l.open[7] = 10; return l }
	behind := func() *fakeLog { return open(newLog().write(19, 5, "v")) }
	mirrored := func(to int64) Options {
		return Options{Full: true, LastMirror: func(string, int32) mirror.Position { return mirror.Position{Offset: to} }}
	}
	for _, tt := range []struct {
		name     string
		src, dst *fakeLog
		options  Options
		first    int64
	}{
		{"decided at the source", level(), open(level()), full, 10},
		{"open on both sides", open(level()), open(level()), full, -1},
		{"open at the source", open(level()), level(), full, -1},
		{"its marker is still to come", level(), behind(), full, -1},
		{"open since before the stop", level(), open(level()), mirrored(15), 10},
		{"begun after the stop", level(), open(level()), mirrored(10), -1},
	} {
		if got := verifyOne(t, tt.src, tt.dst, tt.options); got.FirstDifference != tt.first || got.Equal != (tt.first < 0) {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}
