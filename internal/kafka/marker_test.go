package kafka

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

func TestMarkersTakeOneOffsetEachInOrder(t *testing.T) {
	_, c, m := fakeWithTopic(t, 2)
	ctx := testContext(t)
	leader := m.Topics["t"].Partitions[0].Leader
	mustProduce(t, dialLeader(t, c, m, 0), 0, testBatch(3, recordbatch.Identity{ProducerID: testProducer}))
	var markers []Marker
	for range 20 {
		markers = append(markers, Marker{ProducerID: testProducer, CoordinatorEpoch: 7, TPs: allTPs(2)})
	}
	outcomes, err := c.WriteMarkers(ctx, leader, markers)
	if err != nil || len(outcomes) != 2 {
		t.Fatalf("%v, %v", outcomes, err)
	}
	for key, err := range outcomes {
		if err != nil {
			t.Errorf("%v: %v", key, err)
		}
	}
	ends := c.LogEnds(ctx, allTPs(2))
	if ends[tp(0)].Offset != 23 || ends[tp(1)].Offset != 20 {
		t.Errorf("log ends %+v", ends)
	}
	f, err := c.Read(ctx, tp(0), 3, ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	batch, _, err := recordbatch.Cut(f.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	marker, err := batch.Marker(Codec)
	if err != nil || marker.ProducerID != testProducer || marker.Commit || marker.CoordinatorEpoch != 7 || marker.Offset != 3 {
		t.Errorf("marker %+v, %v", marker, err)
	}
	outcomes, err = c.WriteMarkers(ctx, leader, []Marker{{ProducerID: testProducer, TPs: []TP{tp(9)}}})
	if err != nil || outcomes[MarkerKey{testProducer, tp(9).Name()}] == nil {
		t.Errorf("no such partition: %v, %v", outcomes, err)
	}
}

// R11: after doubt nothing is sent again by itself.
func TestR11_MarkersAreNeverRepeated(t *testing.T) {
	fake, c, m := fakeWithTopic(t, 1)
	var seen atomic.Int32
	fake.ControlKey(kmsg.WriteTxnMarkers.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		seen.Add(1)
		return nil, errors.New("cut"), true // closes the connection
	})
	one := []Marker{{ProducerID: testProducer, TPs: []TP{tp(0)}}}
	_, err := c.WriteMarkers(testContext(t), m.Topics["t"].Partitions[0].Leader, one)
	if !AfterAppendDoubt(err) || mirror.KindOf(err) != mirror.Unreachable || seen.Load() != 1 {
		t.Errorf("sent %d times: %v", seen.Load(), err)
	}
}

func TestR16_MarkersAskTheLeaseRightBefore(t *testing.T) {
	fake, c, m := fakeWithTopic(t, 1)
	fake.ControlKey(kmsg.WriteTxnMarkers.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		t.Error("sent without a lease")
		return nil, nil, false
	})
	lost := mirror.Errorf(mirror.Fenced, "lease lost")
	ctx := WithLease(testContext(t), func() error { return lost })
	leader := m.Topics["t"].Partitions[0].Leader
	_, err := c.WriteMarkers(ctx, leader, []Marker{{ProducerID: testProducer, TPs: []TP{tp(0)}}})
	if !errors.Is(err, lost) || AfterAppendDoubt(err) || mirror.KindOf(err) != mirror.Fenced {
		t.Errorf("%v", err)
	}
	_, err = c.WriteMarkers(testContext(t), 99, nil)
	if AfterAppendDoubt(err) || err == nil {
		t.Errorf("a broker that is not there: %v", err)
	}
}

func TestR16_ResetEndsWritesOnTheirWay(t *testing.T) {
	fake, c, m := fakeWithTopic(t, 1)
	arrived, hold := make(chan struct{}), make(chan struct{})
	fake.ControlKey(kmsg.WriteTxnMarkers.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(arrived)
		fake.SleepControl(func() { <-hold })
		return nil, nil, false
	})
	result := make(chan error)
	go func() {
		_, err := c.WriteMarkers(testContext(t), m.Topics["t"].Partitions[0].Leader, []Marker{{ProducerID: testProducer, TPs: []TP{tp(0)}}})
		result <- err
	}()
	<-arrived
	c.Reset()
	if err := <-result; !AfterAppendDoubt(err) || !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	close(hold)
}

func TestR12_EmptyTransactionsFillOffsets(t *testing.T) {
	_, c, m := fakeWithTopic(t, 20, kfake.NumBrokers(3))
	ctx := testContext(t)
	mustProduce(t, dialLeader(t, c, m, 3), 3, testBatch(4, recordbatch.Identity{ProducerID: testProducer}))
	e := c.EmptyTxns("fill-0", "fill-1", "fill-2")
	if r := e.Fill(ctx, map[TP]int{tp(0): 1})[tp(0)]; r.Err == nil || r.Done != 0 || AfterAppendDoubt(r.Err) {
		t.Errorf("before Init: %+v", r)
	}
	if err := e.Init(ctx); err != nil {
		t.Fatal(err)
	}
	want := map[TP]int{tp(99): 2}
	for p := range int32(20) {
		want[tp(p)] = int(p) + 1
	}
	results := e.Fill(ctx, want)
	for p := range int32(20) {
		if r := results[tp(p)]; r.Err != nil || r.Done != int(p)+1 {
			t.Errorf("partition %d: %+v", p, r)
		}
	}
	if r := results[tp(99)]; !UnknownTopic(r.Err) || r.Done != 0 || AfterAppendDoubt(r.Err) {
		t.Errorf("no such partition: %+v", r)
	}
	eventually(t, "markers written", func() bool {
		ends := c.LogEnds(ctx, allTPs(20))
		for p := range int32(20) {
			wanted := int64(p) + 1
			if p == 3 {
				wanted += 4
			}
			if ends[tp(p)].Offset > wanted {
				t.Fatalf("partition %d: %+v, want %d", p, ends[tp(p)], wanted)
			}
			if ends[tp(p)].Offset < wanted {
				return false
			}
		}
		return true
	})
}

func TestR12_NewOwnerFencesTheOldOne(t *testing.T) {
	_, c, _ := fakeWithTopic(t, 1)
	ctx := testContext(t)
	old, heir := c.EmptyTxns("fill"), c.EmptyTxns("fill")
	if err := errors.Join(old.Init(ctx), heir.Init(ctx)); err != nil {
		t.Fatal(err)
	}
	r := old.Fill(ctx, map[TP]int{tp(0): 3})[tp(0)]
	if mirror.KindOf(r.Err) != mirror.Fenced || r.Done != 0 {
		t.Errorf("old owner: %+v", r)
	}
	if r := old.Fill(ctx, map[TP]int{tp(0): 3})[tp(0)]; r.Err == nil || AfterAppendDoubt(r.Err) {
		t.Errorf("old owner again: %+v", r)
	}
	if r := heir.Fill(ctx, map[TP]int{tp(0): 3})[tp(0)]; r.Err != nil || r.Done != 3 {
		t.Errorf("new owner: %+v", r)
	}
}

func TestR12_LeaseAndContextEndAFill(t *testing.T) {
	_, c, _ := fakeWithTopic(t, 1)
	e := c.EmptyTxns("fill")
	if err := e.Init(testContext(t)); err != nil {
		t.Fatal(err)
	}
	lost := mirror.Errorf(mirror.Fenced, "lease lost")
	asked := 0
	ctx := WithLease(testContext(t), func() error {
		if asked++; asked > 4 {
			return lost
		}
		return nil
	})
	r := e.Fill(ctx, map[TP]int{tp(0): 10})[tp(0)]
	if !errors.Is(r.Err, lost) || r.Done != 2 {
		t.Errorf("lease: %+v", r)
	}
	cancelled, cancel := context.WithCancel(testContext(t))
	cancel()
	if err := e.Init(cancelled); err == nil {
		t.Error("initialised under a context that is over")
	}
	if r := e.Fill(cancelled, map[TP]int{tp(0): 1})[tp(0)]; r.Err == nil || r.Done != 0 {
		t.Errorf("context: %+v", r)
	}
}
