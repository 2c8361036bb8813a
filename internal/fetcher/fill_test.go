package fetcher

import (
	"errors"
	"fmt"
	"testing"

	"mirrord/internal/kafka"
)

func job(partition int32, owner producer, coordinator int32, commit bool) *filling {
	return &filling{fill: fill{owner: owner, commit: commit}, tp: kafka.TP{Topic: "t", Partition: partition, LeaderEpoch: -1}, coordinator: coordinator}
}

// One entry is one offset in each of its partitions; partitions of one identity share entries.
func TestFill_MarkersOfManyPartitions(t *testing.T) {
	own, other := producer{7, 1}, producer{8, 0}
	jobs := []*filling{job(0, own, 5, false), job(1, own, 5, false), job(2, other, 5, true), job(3, own, 6, false)}
	counts := map[*filling]int64{jobs[0]: 1, jobs[1]: 3, jobs[2]: 1, jobs[3]: 2}
	got := ""
	for _, m := range markersOf(jobs, counts) {
		got += fmt.Sprintf("%d/%d/%d/%v:", m.ProducerID, m.ProducerEpoch, m.CoordinatorEpoch, m.Commit)
		for _, tp := range m.TPs {
			got += fmt.Sprint(" ", tp.Partition)
		}
		got += "\n"
	}
	want := "7/1/5/false: 0 1\n7/1/5/false: 1\n7/1/5/false: 1\n8/0/5/true: 2\n7/1/6/false: 3\n7/1/6/false: 3\n"
	if got != want {
		t.Errorf("markers\n%swant\n%s", got, want)
	}
}

func TestR11_OnlyDoubtAboutAMarkerIsAmbiguous(t *testing.T) {
	j := job(0, producer{7, 1}, 5, false)
	if c := fillCause(errors.New("connection closed"), j); !c.still || !c.marker {
		t.Errorf("a lost answer: %+v", c)
	}
	if c := fillCause(fmt.Errorf("%w: lease ended", kafka.ErrNotSent), j); c.still || c.marker {
		t.Errorf("a marker that never left: %+v", c)
	}
}

func TestPipeline_JoinedBatchHoldsTheSameRecords(t *testing.T) {
	p := testPart(false)
	at(p, 0)
	p.pipe.joinTo = joinLimit
	src := newSource1(20)
	feed(t, p, src)
	b, j := newModelBroker(), &joining{budget: newBudget(1 << 20)}
	for p.pipe.ready() == send {
		w := p.pipe.take(j)
		if w.from == 0 && (w.to != 60 || w.records != 60 || !w.joined) {
			t.Errorf("first write is [%d, %d) with %d records, want all 60 in one", w.from, w.to, w.records)
		}
		a := b.produce(w.batch)
		done, _ := p.pipe.answered(a)
		done.hold.drop()
	}
	for i, want := range src.log {
		if b.log[i] != want {
			t.Fatalf("offset %d holds %q, want %q", i, b.log[i], want)
		}
	}
	if used := j.budget.used.Load(); used != 0 {
		t.Errorf("%d bytes of joined batches are still charged", used)
	}
}

func TestPipeline_LargeOrCompressedBatchesAreNeverJoined(t *testing.T) {
	p := testPart(false)
	at(p, 0)
	p.pipe.joinTo = joinLimit
	feed(t, p, newSource1(2))
	p.pipe.queue.at(0).batch[22] |= 1 // gzip, by its header
	if w := p.pipe.take(&joining{budget: newBudget(1 << 20)}); w.joined {
		t.Error("a compressed batch was joined")
	}
}
