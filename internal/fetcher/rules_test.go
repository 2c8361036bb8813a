package fetcher

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// at resumes a partition at an offset with what a broker knows.
func at(p *part, end int64, producers ...kafka.Producer) {
	p.pipe.resume(p.place(kafka.ResumePoint{LogEnd: end, Producers: producers}))
	p.look.cause = cause{}
}

// feed plans and queues a source from the tail on.
func feed(t *testing.T, p *part, src *modelSource) {
	t.Helper()
	items, err := p.plan.plan(p.pipe.tail, fetched{records: src.fetch(p.pipe.tail, 1000), bound: src.end(), hold: testHold()})
	if err != nil {
		t.Fatal(err)
	}
	p.pipe.push(items)
}

func newSource1(batches int) *modelSource {
	src := &modelSource{gone: map[int]string{}}
	for range batches {
		src.data(3, 1000)
	}
	return src
}

func take(t *testing.T, p *part) *write {
	t.Helper()
	if got := p.pipe.ready(); got != send {
		t.Fatalf("ready says %d, want send", got)
	}
	return p.pipe.take(nil)
}

func TestR1_IdentityIsOfMirrorAndSourceTopic(t *testing.T) {
	p, q, r := testPart(false), testPart(false), testPart(false)
	q.key.Mirror, r.key.TopicID = "west", mirror.TopicID{2}
	ids := map[int64]bool{p.ownID(0): true, q.ownID(0): true, r.ownID(0): true, p.ownID(1): true}
	if len(ids) != 4 {
		t.Errorf("mirrors, topics and generations share an id: %v", ids)
	}
	for id := range ids {
		if id < mirror.IdentityProducerIDs {
			t.Errorf("id %d lies below 2^62", id)
		}
	}
}

func TestR2_SequenceFollowsTheBrokersMemory(t *testing.T) {
	p := testPart(false)
	for _, c := range []struct {
		name  string
		known []kafka.Producer
		want  recordbatch.Identity
	}{
		{"unknown", nil, recordbatch.Identity{ProducerID: p.ownID(0)}},
		{"known", []kafka.Producer{{ID: p.ownID(0), Epoch: 4, LastSequence: 41}}, recordbatch.Identity{ProducerID: p.ownID(0), ProducerEpoch: 4, Sequence: 42}},
		{"only a marker", []kafka.Producer{{ID: p.ownID(0), Epoch: 5, LastSequence: -1}}, recordbatch.Identity{ProducerID: p.ownID(0), ProducerEpoch: 5}},
		{"wraps", []kafka.Producer{{ID: p.ownID(0), LastSequence: math.MaxInt32}}, recordbatch.Identity{ProducerID: p.ownID(0)}},
		{"next generation", []kafka.Producer{{ID: p.ownID(0), Epoch: 9}, {ID: p.ownID(1), Epoch: 2, LastSequence: 7}}, recordbatch.Identity{ProducerID: p.ownID(1), ProducerEpoch: 2, Sequence: 8}},
		{"epochs used up", []kafka.Producer{{ID: p.ownID(0), Epoch: lastEpoch, LastSequence: 7}}, recordbatch.Identity{ProducerID: p.ownID(1)}},
	} {
		if got, _, _ := p.identity(c.known); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestR2_SequenceCountsRecordsAndWraps(t *testing.T) {
	p := testPart(false)
	at(p, 0, kafka.Producer{ID: p.ownID(0), LastSequence: math.MaxInt32 - 2})
	feed(t, p, newSource1(3))
	for i, want := range []int32{math.MaxInt32 - 1, 1, 4} {
		w := take(t, p)
		if got := w.batch.BaseSequence(); got != want {
			t.Errorf("batch %d has sequence %d, want %d", i, got, want)
		}
		p.pipe.answered(answer{verdict: stored, base: w.from, appendTime: -1})
	}
}

func TestR3_OlderOffsetIsLookedAtAgain(t *testing.T) {
	p := testPart(false)
	at(p, 3)
	feed(t, p, newSource1(3))
	take(t, p)
	if _, ev := p.pipe.answered(answer{verdict: stored, base: 0, appendTime: -1}); ev != look || p.pipe.phase != probing {
		t.Errorf("event %d, phase %d after an older offset; want a look", ev, p.pipe.phase)
	}
}

func TestR4_OneInFlightUntilFirstAcknowledgement(t *testing.T) {
	p := testPart(false)
	at(p, 0)
	feed(t, p, newSource1(10))
	w := take(t, p)
	if p.pipe.ready() != wait {
		t.Fatal("a second batch may leave before the first is acknowledged")
	}
	p.pipe.answered(answer{verdict: stored, base: w.from, appendTime: -1})
	for range maxFlight {
		take(t, p)
	}
	if p.pipe.ready() != wait {
		t.Fatalf("more than %d batches in flight", maxFlight)
	}
	for range maxFlight {
		p.pipe.answered(answer{verdict: ambiguous, err: errors.New("closed")})
	}
	at(p, 3)
	feed(t, p, newSource1(10))
	take(t, p)
	if p.pipe.ready() != wait {
		t.Error("after doubt a second batch may leave before the first is acknowledged")
	}
}

func TestR4_OneInFlightWhileRecordsAreOld(t *testing.T) {
	p := testPart(false)
	at(p, 0)
	p.pipe.aloneBelow = 2000
	feed(t, p, newSource1(3))
	for range 3 {
		w := take(t, p)
		if p.pipe.ready() != wait {
			t.Fatal("two batches in flight that the broker may forget")
		}
		p.pipe.answered(answer{verdict: stored, base: w.from, appendTime: -1})
	}
}

func TestR5_StraddlingBatchIsCutAtTheLogEnd(t *testing.T) {
	p := testPart(false)
	at(p, 4)
	src := newSource1(3)
	feed(t, p, src)
	w := take(t, p)
	if w.from != 4 || w.to != 6 || w.records != 2 {
		t.Errorf("first write is [%d, %d) with %d records, want [4, 6) with 2", w.from, w.to, w.records)
	}
	b := newModelBroker()
	b.log = append(b.log, src.log[:4]...)
	if a := b.produce(w.batch); a.verdict != stored || b.log[4] != src.log[4] || b.log[5] != src.log[5] {
		t.Errorf("stored %v as %q", a, b.log)
	}
}

func TestR6_NothingLeavesAfterDoubtBeforeALook(t *testing.T) {
	p := testPart(false)
	at(p, 0)
	feed(t, p, newSource1(10))
	w := take(t, p)
	p.pipe.answered(answer{verdict: stored, base: w.from, appendTime: -1})
	take(t, p)
	take(t, p)
	if _, ev := p.pipe.answered(answer{verdict: ambiguous, err: errors.New("timeout")}); ev != nothing || p.pipe.ready() != wait {
		t.Fatal("a look while another answer is due, or a write after doubt")
	}
	if _, ev := p.pipe.answered(answer{verdict: refused, err: errors.New("out of order")}); ev != look || p.pipe.ready() != wait {
		t.Fatalf("event %d, ready %d; want a look and nothing to write", ev, p.pipe.ready())
	}
}

func TestR8_LogAppendTimeIsAForeignSetting(t *testing.T) {
	p := testPart(false)
	at(p, 0)
	feed(t, p, newSource1(2))
	w := take(t, p)
	if _, ev := p.pipe.answered(answer{verdict: stored, base: 0, appendTime: w.maxTime}); ev != progress {
		t.Fatalf("a repeat, which is answered with its own time, ended in %d", ev)
	}
	take(t, p)
	if _, ev := p.pipe.answered(answer{verdict: stored, base: 3, appendTime: 99999}); ev != failed || mirror.KindOf(p.pipe.failure) != mirror.IdentityBroken {
		t.Errorf("event %d, %v", ev, p.pipe.failure)
	}
}

func TestR10_FirstFillerRaisesTheProducerEpoch(t *testing.T) {
	p := testPart(false)
	src := &modelSource{gone: map[int]string{}}
	src.gap(2)
	src.data(3, 1000)
	src.gap(1)
	src.data(3, 1000)
	at(p, 0, kafka.Producer{ID: p.ownID(0), Epoch: 6, LastSequence: 11})
	feed(t, p, src)
	if p.pipe.ready() != fillIn {
		t.Fatal("no fill")
	}
	f := p.pipe.takeFill()
	if f.owner != (producer{p.ownID(0), 7}) || f.from != 0 || f.to != 2 {
		t.Errorf("first fill is [%d, %d) under %+v, want [0, 2) under epoch 7", f.from, f.to, f.owner)
	}
	p.pipe.filled(f)
	w := take(t, p)
	if w.batch.ProducerEpoch() != 7 || w.batch.BaseSequence() != 0 {
		t.Errorf("data goes on at epoch %d, sequence %d; want 7, 0", w.batch.ProducerEpoch(), w.batch.BaseSequence())
	}
	if p.pipe.ready() != wait {
		t.Error("something may leave beside the first batch of an epoch")
	}
	p.pipe.answered(answer{verdict: stored, base: 2, appendTime: -1})
	if f = p.pipe.takeFill(); f.owner.epoch != 7 {
		t.Errorf("second fill is under epoch %d, want 7", f.owner.epoch)
	}
}

func TestR11_CoordinatorEpochIsClaimAndAttempt(t *testing.T) {
	p := testPart(false)
	p.target.Claim = 5
	at(p, 0)
	if want := int32(5 << attemptBits); p.coordinator != want {
		t.Errorf("coordinator epoch %d, want %d", p.coordinator, want)
	}
	p.look.cause.add(cause{still: true})
	at(p, 0)
	if want := int32(5 << attemptBits); p.coordinator != want {
		t.Errorf("doubt about data made an attempt: %d, want %d", p.coordinator, want)
	}
	p.look.cause.add(cause{still: true, marker: true})
	at(p, 0)
	if want := int32(5<<attemptBits + 1); p.coordinator != want || !p.pipe.careful {
		t.Errorf("coordinator epoch %d, careful %v after a marker in doubt; want %d, true", p.coordinator, p.pipe.careful, want)
	}
	p.target.Claim = 6
	at(p, 0)
	if want := int32(6 << attemptBits); p.coordinator != want {
		t.Errorf("coordinator epoch %d under the next claim, want %d", p.coordinator, want)
	}
	at(p, 0, kafka.Producer{ID: p.ownID(0), CoordinatorEpoch: 1 << 30}) // the state topic was lost, claims began anew
	if p.coordinator < 1<<30 {
		t.Errorf("coordinator epoch %d is below what the broker knows", p.coordinator)
	}
}

func TestR11_LogEndStandsStillAfterAMarkerInDoubt(t *testing.T) {
	p := testPart(false)
	p.src = &source{pool: &Pool{wake: make(chan struct{}, 1)}}
	p.look.cause.add(cause{still: true, marker: true})
	began := time.Now()
	if p.quiet(began, 10) || p.quiet(began.Add(3*time.Second), 11) || p.quiet(began.Add(6*time.Second), 11) {
		t.Fatal("went on before the log end had stood still for 5 s")
	}
	if !p.quiet(began.Add(8*time.Second), 11) {
		t.Error("does not go on after 5 s")
	}
}

func TestR11_OneMarkerAloneAfterDoubt(t *testing.T) {
	jobs := []*filling{{fill: fill{from: 0, to: 50, careful: true}}, {fill: fill{from: 0, to: 50}}}
	counts := share(jobs, 100, false)
	if counts[jobs[0]] != 1 || counts[jobs[1]] != 50 {
		t.Errorf("%d and %d markers in one request, want 1 and 50", counts[jobs[0]], counts[jobs[1]])
	}
}

func TestR14_ShiftedIDs(t *testing.T) {
	for _, c := range []struct {
		id   int64
		slot int8
		want int64 // −1: refused
	}{
		{0, 0, 1 << 61},
		{12345, 0, 1<<61 + 12345},
		{12345, 3, 1<<61 + 3<<56 + 12345},
		{1<<61 + 7, 0, 1<<61 + 1<<56 + 7},
		{1<<61 + 7, 3, 1<<61 + 4<<56 + 7}, // beyond the slot of native ones
		{1<<61 + 2<<56 + 7, 3, 1<<61 + 6<<56 + 7},
		{12345, 31, 1<<61 + 31<<56 + 12345},
		{1<<61 + 7, 31, -1},
		{1<<62 + 7, 0, -1},
		{1<<63 - 1, 31, -1},
		{1<<62 - 1, 0, -1}, // the last slot
		{1 << 60, 0, -1},
		{-1, 0, -1},
	} {
		got, err := shiftProducer(c.id, c.slot)
		if (err != nil) != (c.want < 0) || err == nil && got != c.want {
			t.Errorf("shift %d by slot %d: %d, %v; want %d", c.id, c.slot, got, err, c.want)
		}
	}
}

func TestR14_TwoProducersAreNeverInFlightTogether(t *testing.T) {
	p := testPart(true)
	src := &modelSource{gone: map[int]string{}, exact: true}
	src.data(1, 1000)
	src.transactional(5, 0, 1, false)
	src.transactional(6, 0, 1, false)
	src.marker(5, 0, true)
	at(p, 0)
	feed(t, p, src)
	var owners []producer
	for i := range 3 {
		w := take(t, p)
		owners = append(owners, w.owner)
		if !w.batch.IsTransactional() && i > 0 {
			t.Error("the transactional flag is lost")
		}
		if p.pipe.ready() != wait {
			t.Fatal("another producer's batch may leave while one is in flight")
		}
		p.pipe.answered(answer{verdict: stored, base: w.from, appendTime: -1})
	}
	f := p.pipe.takeFill()
	if !f.marker || !f.commit || f.owner != owners[1] {
		t.Errorf("marker %+v, want a commit of %+v", f, owners[1])
	}
}

func TestR21_ForeignWriteNamesBothOffsets(t *testing.T) {
	p := testPart(false)
	at(p, 0)
	feed(t, p, newSource1(2))
	take(t, p)
	_, ev := p.pipe.answered(answer{verdict: stored, base: 1, appendTime: -1})
	want := `the record of offset 0 was stored at offset 1: somebody else has written into the destination topic; ` +
		`once nobody writes there any more, "mirrord recover --reseed" copies the topic again`
	if ev != failed || p.pipe.failure.Error() != want || mirror.KindOf(p.pipe.failure) != mirror.IdentityBroken {
		t.Errorf("event %d, %v", ev, p.pipe.failure)
	}
	if p.pipe.ready() != wait {
		t.Error("something may leave after a failure")
	}
}

func TestPlan_AbortedDataBecomesHoles(t *testing.T) {
	src := &modelSource{gone: map[int]string{}}
	src.transactional(5, 0, 2, true)
	src.transactional(6, 0, 2, false)
	src.marker(5, 0, false)
	src.transactional(5, 0, 1, false)
	src.marker(6, 0, true)
	items, err := testPlanner(false).plan(0, fetched{
		records: src.fetch(0, 10), bound: src.end(), hold: testHold(),
		aborted: []kafka.AbortedTxn{{ProducerID: 5, FirstOffset: 0}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, i := range items {
		got += fmt.Sprintf("%d:%d-%d ", i.kind, i.from, i.to)
	}
	if want := "1:0-2 0:2-4 1:4-5 0:5-6 1:6-7 "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestPlan_DamageIsNeverAHole(t *testing.T) {
	for name, src := range map[string]func() *modelSource{
		"emptied": func() *modelSource { s := newSource1(1); s.holed(2, 1000, func(int) bool { return false }); return s },
		"marker":  func() *modelSource { s := newSource1(1); s.marker(3, 0, false); return s },
	} {
		t.Run(name, func(t *testing.T) {
			s := src()
			b := s.fetch(0, 10)
			b[len(s.batches[0])+30] ^= 4 // in the header of the second batch, under its CRC
			items, err := testPlanner(false).plan(0, fetched{records: b, bound: s.end(), hold: testHold()})
			if !errors.Is(err, errDamaged) || len(items) != 1 {
				t.Errorf("%d items, error %v; want one item and damage", len(items), err)
			}
		})
	}
}

func TestPlan_BatchesThatFallBackAreDamage(t *testing.T) {
	s := newSource1(3)
	b := append(append([]byte{}, s.batches[1]...), s.batches[0]...)
	if _, err := testPlanner(false).plan(3, fetched{records: b, bound: s.end(), hold: testHold()}); !errors.Is(err, errDamaged) {
		t.Errorf("error %v, want damage", err)
	}
}

func TestPipeline_ClosedStillLearnsWhatArrives(t *testing.T) {
	p := testPart(false)
	at(p, 0)
	feed(t, p, newSource1(3))
	w := take(t, p)
	p.pipe.close()
	if p.pipe.idle() {
		t.Fatal("idle with an answer to come")
	}
	p.pipe.answered(answer{verdict: stored, base: w.from, appendTime: -1})
	if !p.pipe.idle() || p.pipe.acked != 3 {
		t.Errorf("idle %v, acknowledged to %d; want true, 3", p.pipe.idle(), p.pipe.acked)
	}
}

// A base offset is not covered by the checksum. One that was damaged looks like a hole until the next batch shows that it
// cannot be: neither hole nor batch is taken, what came before is.
func TestPlan_DamagedBaseOffset(t *testing.T) {
	for _, offset := range []uint64{4, 5} {
		src := newSource1(4)
		binary.BigEndian.PutUint64(src.batches[1], offset) // in truth 3
		items, err := testPlanner(false).plan(0, fetched{records: src.fetch(0, 1000), bound: src.end(), hold: testHold()})
		if !errors.Is(err, errDamaged) || len(items) != 1 || items[0].to != 3 {
			t.Errorf("%d items, %v", len(items), err)
		}
	}
}
