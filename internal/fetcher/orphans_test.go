package fetcher

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// cleaned is a source whose cleaner works while it is copied. It obeys Kafka's rule: a marker goes only after all data of
// its transaction.
type cleaned struct {
	modelSource
	txns []*sourceTxn
	open map[int64]*sourceTxn
	// raise: each transaction of a producer has an epoch of its own
	raise  bool
	epochs map[int64]int16
	now    int64 // the process clock
}

type sourceTxn struct {
	producer     int64
	offsets      []int64             // of all its data
	batches      []recordbatch.Batch // that are left
	marker       recordbatch.Batch
	ended, clear bool // clear: its marker is gone
	commit       bool
}

func newCleaned() *cleaned {
	return &cleaned{modelSource: modelSource{exact: true, gone: map[int]string{}}, open: map[int64]*sourceTxn{}, epochs: map[int64]int16{}}
}

func (s *cleaned) write(id int64, n int) {
	x := s.open[id]
	if x == nil {
		x = &sourceTxn{producer: id}
		s.open[id], s.txns = x, append(s.txns, x)
	}
	s.transactional(id, s.epochs[id], n, false)
	b := s.batches[len(s.batches)-1]
	x.batches = append(x.batches, b)
	for o := b.BaseOffset(); o < b.NextOffset(); o++ {
		x.offsets = append(x.offsets, o)
	}
}

func (s *cleaned) decide(id int64, commit bool) {
	x := s.open[id]
	if x == nil {
		return
	}
	if s.raise {
		s.epochs[id]++
	}
	s.marker(id, s.epochs[id], commit)
	x.marker, x.ended, x.commit = s.batches[len(s.batches)-1], true, commit
	delete(s.open, id)
}

// clean takes one batch of a decided transaction, or its marker after the last of them.
func (s *cleaned) clean(x *sourceTxn, which int) {
	gone := x.marker
	switch n := len(x.batches); {
	case !x.ended || x.clear:
		return
	case n > 0:
		gone = x.batches[which%n]
		x.batches = slices.Delete(x.batches, which%n, which%n+1)
	default:
		x.clear = true
	}
	s.batches = slices.DeleteFunc(s.batches, func(b recordbatch.Batch) bool { return b.BaseOffset() == gone.BaseOffset() })
}

// aborted is what a read_committed answer from an offset on tells of aborted transactions.
func (s *cleaned) aborted(at int64) (txns []kafka.AbortedTxn) {
	for _, x := range s.txns {
		if x.ended && !x.clear && !x.commit && x.marker.BaseOffset() >= at {
			txns = append(txns, kafka.AbortedTxn{ProducerID: x.producer, FirstOffset: x.offsets[0]})
		}
	}
	return txns
}

func (s *cleaned) read(_ context.Context, offset int64, _ int32) ([]byte, error) {
	s.now++
	return s.fetch(offset, 2), nil
}

func (s *cleaned) producers(context.Context) (ps []kafka.Producer, err error) {
	for id, x := range s.open {
		ps = append(ps, kafka.Producer{ID: id, TxnStart: x.offsets[0]})
	}
	return ps, nil
}

// decidedCopy is a destination that follows transactions like a broker.
type decidedCopy struct {
	end    int64
	open   map[int64]int64 // by producer id: where its transaction began
	shown  map[int64]bool  // offsets that were committed
	hidden map[int64]bool  // offsets that were aborted
	data   map[int64][]int64
	epochs map[int64]int16
}

func (d *decidedCopy) write(w *write) {
	d.end = w.to
	if !mirror.MirroredProducer(w.owner.id) {
		for o := w.from; o < w.to; o++ {
			d.shown[o] = true
		}
		return
	}
	if _, open := d.open[w.owner.id]; !open {
		d.open[w.owner.id] = w.from
	}
	d.epochs[w.owner.id] = w.owner.epoch
	for o := w.from; o < w.to; o++ {
		d.data[w.owner.id] = append(d.data[w.owner.id], o)
	}
}

func (d *decidedCopy) fill(f fill) {
	d.end = f.to
	if !f.marker {
		return
	}
	into := d.hidden
	if f.commit {
		into = d.shown
	}
	for _, o := range d.data[f.owner.id] {
		into[o] = true
	}
	delete(d.open, f.owner.id)
	delete(d.data, f.owner.id)
}

func (d *decidedCopy) producers() (ps []kafka.Producer) {
	for id, from := range d.open {
		ps = append(ps, kafka.Producer{ID: id, Epoch: d.epochs[id], LastSequence: 1, CoordinatorEpoch: -1, TxnStart: from})
	}
	return ps
}

// step lets the copy go on by one thing.
func (d *decidedCopy) step(t *rapid.T, p *part, src *cleaned) {
	if p.pipe.phase != running {
		return
	}
	switch p.pipe.ready() {
	case send:
		w := p.pipe.take(nil)
		d.write(w)
		p.pipe.answered(answer{verdict: stored, base: w.from, appendTime: -1})
	case fillIn:
		f := p.pipe.takeFill()
		d.fill(f)
		p.pipe.filled(f)
	case ask:
		src.now++
		q := p.pipe.inquire(src.now)
		err := q.ask(context.Background(), src, 0)
		if mirror.KindOf(err) == mirror.Diverged && len(q.open)-len(q.held) > int(q.to-q.from) {
			p.pipe.fail(err) // more transactions than offsets, and no epoch to tell them apart
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		p.pipe.informed(q)
	case wait:
		src.now++
		p.plan.open = p.pipe.open
		items, err := p.plan.plan(p.pipe.tail, fetched{
			records: src.fetch(p.pipe.tail, rapid.IntRange(1, 4).Draw(t, "batches")), bound: src.end(),
			aborted: src.aborted(p.pipe.tail), hold: testHold(), arrived: src.now,
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(items) == 0 && p.pipe.tail < src.end() {
			items = []item{{kind: hole, from: p.pipe.tail, to: src.end(), maxTime: -1, epoch: -1, arrived: src.now}}
		}
		p.pipe.push(items)
	}
}

// judge compares what consumers get with what the source decided.
func (d *decidedCopy) judge(t *rapid.T, src *cleaned) {
	if len(d.open) > 0 {
		t.Fatalf("still open at the destination: %v", d.open)
	}
	for _, x := range src.txns {
		for _, o := range x.offsets {
			left := slices.ContainsFunc(x.batches, func(b recordbatch.Batch) bool { return b.BaseOffset() <= o && o < b.NextOffset() })
			if d.shown[o] && !x.commit || left && x.commit && !d.shown[o] {
				t.Fatalf("offset %d of producer %d: shown %v, committed %v, left at the source %v", o, x.producer, d.shown[o], x.commit, left)
			}
		}
	}
}

// However the source's cleaner and the copy take turns, what was aborted at the source is never committed at the
// destination, what is committed and still there is never aborted, and nothing that the source has decided stays open.
func TestR14_TransactionsEndAsAtTheSource(t *testing.T) {
	for _, exact := range []bool{true, false} { // false: the mode was changed while transactions were open
		rapid.Check(t, func(t *rapid.T) {
			src, p := newCleaned(), testPart(true)
			src.raise = rapid.Bool().Draw(t, "epochs rise")
			last := rapid.Int64Range(5, 7).Draw(t, "last producer")
			d := &decidedCopy{open: map[int64]int64{}, shown: map[int64]bool{}, hidden: map[int64]bool{}, data: map[int64][]int64{}, epochs: map[int64]int16{}}
			restart := func() {
				if p.pipe.phase != closed {
					at(p, d.end, d.producers()...)
				}
			}
			restart()
			for range rapid.IntRange(0, 120).Draw(t, "steps") {
				id := rapid.Int64Range(5, last).Draw(t, "producer")
				switch rapid.IntRange(0, 9).Draw(t, "action") {
				case 0, 1:
					src.write(id, rapid.IntRange(1, 2).Draw(t, "records"))
				case 2:
					src.decide(id, rapid.Bool().Draw(t, "commit"))
				case 3:
					src.data(1, 1000)
				case 4, 5:
					if n := len(src.txns); n > 0 {
						src.clean(src.txns[rapid.IntRange(0, n-1).Draw(t, "transaction")], rapid.IntRange(0, 9).Draw(t, "batch"))
					}
				case 6:
					restart()
				default:
					d.step(t, p, src)
				}
			}
			for id := range int64(10) {
				src.decide(id, rapid.Bool().Draw(t, "commit"))
			}
			p.plan.exact = exact
			restart()
			for d.end < src.end() && p.pipe.phase == running {
				d.step(t, p, src)
			}
			if p.pipe.phase == running {
				d.judge(t, src)
			}
		})
	}
}

// Where a hole is too short for all that may have ended in it, what follows decides.
func TestR14_AShortHoleEndsWhatMustHaveEndedThere(t *testing.T) {
	const a, b = int64(5), int64(6)
	for _, tt := range []struct {
		name   string
		follow func(*modelSource)
		room   int
		want   []int64 // of source producers; nil: it cannot be told
	}{
		{"both fit", func(s *modelSource) { s.transactional(a, 0, 1, false); s.transactional(b, 0, 1, false) }, 2, []int64{a, b}},
		{"one goes on in another epoch", func(s *modelSource) { s.transactional(a, 0, 1, false); s.transactional(b, 1, 1, false) }, 1, []int64{b}},
		{"the marker of one follows", func(s *modelSource) { s.marker(a, 0, true); s.transactional(b, 0, 1, false) }, 1, []int64{b}},
		{"one is not heard of again", func(s *modelSource) { s.transactional(b, 0, 1, false) }, 1, []int64{b, a}},
		{"both go on in their epoch", func(s *modelSource) { s.transactional(a, 0, 1, false); s.transactional(b, 0, 1, false) }, 1, nil},
	} {
		src, p := newCleaned(), testPart(true)
		src.gap(2)
		src.data(1, 1000)
		src.gap(tt.room)
		tt.follow(&src.modelSource)
		at(p, 3, kafka.Producer{ID: mirror.MirroredProducerIDs + a, TxnStart: 0}, kafka.Producer{ID: mirror.MirroredProducerIDs + b, TxnStart: 1})
		feed(t, p, &src.modelSource)
		if got := p.pipe.ready(); got != ask {
			t.Fatalf("%s: ready says %d, want ask", tt.name, got)
		}
		q := p.pipe.inquire(1)
		err := q.ask(context.Background(), src, 0)
		var got []int64
		for _, o := range q.orphans {
			got = append(got, o.id-mirror.MirroredProducerIDs)
		}
		if !slices.Equal(got, tt.want) || (mirror.KindOf(err) == mirror.Diverged) != (tt.want == nil) {
			t.Errorf("%s: %v, %v; want %v", tt.name, got, err, tt.want)
		}
	}
}
