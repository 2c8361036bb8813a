package fetcher

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naive copies a source by the rules alone: one thing at a time, waiting for each answer.
func naive(t *rapid.T, src *modelSource) []string {
	p, b := testPart(src.exact), newModelBroker()
	for int64(len(b.log)) < src.end() {
		at := int64(len(b.log))
		items, err := p.plan.plan(at, fetched{records: src.fetch(at, 1), bound: src.end(), hold: testHold()})
		if err != nil {
			t.Fatal(err)
		}
		if len(items) == 0 {
			items = []item{{kind: hole, from: at, to: src.end()}}
		}
		own := producer{p.ownID(0), 0}
		for _, i := range items {
			switch i.kind {
			case data:
				o := i.owner
				if o == (producer{}) {
					o = own
				}
				sequence := int32(0)
				if known := b.producers[o.id]; known != nil && known.epoch == o.epoch {
					sequence = nextSequence(known.last)
				}
				batch := copyBatch(i.batch)
				batch.Patch(identityOf(o, sequence), o != own)
				if a := b.produce(batch); a.verdict != stored || a.base != i.from {
					t.Fatalf("naive write at %d: %+v", i.from, a)
				}
			case ending:
				if err := b.marker(i.owner, 1); err != nil {
					t.Fatal(err)
				}
			default:
				for range i.to - i.from {
					if err := b.marker(own, 1); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	return b.log
}

// Without faults, the pipeline leaves the same log as the naive loop, however it joins and overlaps.
func TestPipeline_EqualsTheNaiveLoop(t *testing.T) {
	for _, exact := range []bool{false, true} {
		rapid.Check(t, func(t *rapid.T) {
			w := &world{t: t, src: drawSource(t, exact), broker: newModelBroker(), calm: true}
			wr := w.newWriter()
			for range rapid.IntRange(0, 60).Draw(t, "steps") {
				switch rapid.IntRange(0, 4).Draw(t, "action") {
				case 0:
					w.fetch(wr)
				case 1:
					w.write(wr)
				case 2:
					w.deliver(wr)
				case 3:
					w.answer(wr)
				case 4:
					w.look(wr)
				}
			}
			w.finish(wr)
			if want := naive(t, w.src); !slices.Equal(w.broker.log, want) {
				t.Fatalf("pipeline:\n%q\nnaive:\n%q", w.broker.log, want)
			}
		})
	}
}
