package kafka

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

func allTPs(n int32) (tps []TP) {
	for p := range n {
		tps = append(tps, tp(p))
	}
	return tps
}

func TestOffsetsOfManyPartitionsOnManyBrokers(t *testing.T) {
	_, c, m := fakeWithTopic(t, 50, kfake.NumBrokers(3))
	ctx := testContext(t)
	for p := range int32(50) {
		if p%5 == 0 {
			mustProduce(t, dialLeader(t, c, m, p), p, testBatch(p+1, recordbatch.Identity{ProducerID: testProducer}))
		}
	}
	tps := append(allTPs(50), tp(99), TP{Topic: "nowhere", LeaderEpoch: -1})
	ends, ranges, producers := c.LogEnds(ctx, tps), c.Ranges(ctx, tps), c.Producers(ctx, allTPs(50))
	epochs := []EpochQuery{}
	for _, tp := range allTPs(50) {
		epochs = append(epochs, EpochQuery{tp, 0})
	}
	epochEnds := c.EpochEnds(ctx, epochs)
	for p := range int32(50) {
		want := int64(0)
		if p%5 == 0 {
			want = int64(p + 1)
		}
		if r := ends[tp(p)]; r.Err != nil || r.Offset != want {
			t.Errorf("log end of %d: %+v", p, r)
		}
		if r := ranges[tp(p)]; r != (RangeResult{0, want, want, nil}) {
			t.Errorf("range of %d: %+v", p, r)
		}
		if r := producers[tp(p)]; r.Err != nil {
			t.Errorf("producers of %d: %+v", p, r)
		}
		if r := epochEnds[tp(p)]; r.Err != nil || r.EndOffset != want {
			t.Errorf("epoch end of %d: %+v", p, r)
		}
	}
	for _, missing := range tps[50:] {
		if !UnknownTopic(ends[missing].Err) || !UnknownTopic(ranges[missing].Err) {
			t.Errorf("%s: %v, %v", missing, ends[missing].Err, ranges[missing].Err)
		}
	}
}

func TestMovedLeaderIsFound(t *testing.T) {
	fake, c, _ := fakeWithTopic(t, 1, kfake.NumBrokers(3))
	ctx := testContext(t)
	for range 4 {
		to := (fake.LeaderFor("t", 0) + 1) % 3
		if err := fake.MoveTopicPartition("t", 0, to); err != nil {
			t.Fatal(err)
		}
		if r := c.LogEnds(ctx, []TP{tp(0)})[tp(0)]; r.Err != nil {
			t.Fatal(r.Err)
		}
		if r := c.Resume(ctx, []TP{tp(0)})[tp(0)]; r.Err != nil || r.Broker != to {
			t.Fatalf("%+v, want broker %d", r, to)
		}
	}
	stale := TP{Topic: "t", LeaderEpoch: 0} // the caller insists
	if r := c.LogEnds(ctx, []TP{stale})[stale]; !FencedLeaderEpoch(r.Err) {
		t.Errorf("%+v", r)
	}
}

// R3: producers first, log end second, both from the broker that leads, with its leader epoch, as debug replica.
func TestR3_ProducersBeforeLogEndFromTheLeader(t *testing.T) {
	fake, c, m := fakeWithTopic(t, 2)
	mustProduce(t, dialLeader(t, c, m, 0), 0, testBatch(5, recordbatch.Identity{ProducerID: testProducer}))
	var order []string
	fake.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		switch req := req.(type) {
		case *kmsg.DescribeProducersRequest:
			order = append(order, "producers")
			resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
			for _, topic := range req.Topics {
				rt := kmsg.NewDescribeProducersResponseTopic()
				rt.Topic = topic.Topic
				for _, p := range topic.Partitions {
					rp := kmsg.NewDescribeProducersResponseTopicPartition()
					rp.Partition = p
					a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
					a.ProducerID, a.ProducerEpoch, a.LastSequence, a.CoordinatorEpoch = testProducer, 3, 4, 6
					rp.ActiveProducers = append(rp.ActiveProducers, a)
					rt.Partitions = append(rt.Partitions, rp)
				}
				resp.Topics = append(resp.Topics, rt)
			}
			return resp, nil, true
		case *kmsg.ListOffsetsRequest:
			kind := "high watermark"
			if req.ReplicaID == debugReplica {
				kind = map[int64]string{latestOffset: "log end", earliestOffset: "log start"}[req.Topics[0].Partitions[0].Timestamp]
			}
			if req.Topics[0].Partitions[0].CurrentLeaderEpoch < 0 {
				kind += " without a leader epoch"
			}
			order = append(order, kind)
		}
		return nil, nil, false
	})
	points := c.Resume(testContext(t), allTPs(2))
	want := []string{"producers", "log end", "log start", "high watermark"}
	if len(order) != len(want) {
		t.Fatalf("order %v, want %v: one request each for all partitions", order, want)
	}
	for i := range want {
		if order[i] != want[i] {
			t.Fatalf("order %v, want %v", order, want)
		}
	}
	r := points[tp(0)]
	if r.Err != nil || r.LogEnd != 5 || r.LogStart != 0 || r.HighWatermark != 5 || r.Broker != m.Topics["t"].Partitions[0].Leader {
		t.Errorf("%+v", r)
	}
	if p, ok := r.Producer(testProducer); !ok || p.Epoch != 3 || p.LastSequence != 4 || p.CoordinatorEpoch != 6 || p.TxnStart != -1 {
		t.Errorf("producer %+v, %v", p, ok)
	}
	if _, ok := r.Producer(1); ok {
		t.Error("a producer out of nowhere")
	}
}

func TestResumePointNeedsEveryPart(t *testing.T) {
	for n := range int32(4) { // the n-th request is refused
		fake, c, _ := fakeWithTopic(t, 1)
		var seen atomic.Int32
		refuse := func(req kmsg.Request) (kmsg.Response, error, bool) {
			fake.KeepControl()
			if seen.Add(1) != n+1 {
				return nil, nil, false
			}
			return refused(req, kerr.TopicAuthorizationFailed.Code), nil, true
		}
		fake.ControlKey(kmsg.DescribeProducers.Int16(), refuse)
		fake.ControlKey(kmsg.ListOffsets.Int16(), refuse)
		if r := c.Resume(testContext(t), []TP{tp(0)})[tp(0)]; !TopicAuthorization(r.Err) || mirror.KindOf(r.Err) != mirror.Refused {
			t.Errorf("request %d refused: %+v", n, r)
		}
	}
}

// refused answers for partition 0 of "t".
func refused(req kmsg.Request, code int16) kmsg.Response {
	switch resp := req.ResponseKind().(type) {
	case *kmsg.DescribeProducersResponse:
		rt, rp := kmsg.NewDescribeProducersResponseTopic(), kmsg.NewDescribeProducersResponseTopicPartition()
		rt.Topic, rp.ErrorCode = "t", code
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp
	case *kmsg.ListOffsetsResponse:
		rt, rp := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
		rt.Topic, rp.ErrorCode, rp.Offset = "t", code, -1
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp
	}
	panic("no such request")
}

func TestPartitionLeftOutOfAnAnswer(t *testing.T) {
	fake, c, _ := fakeWithTopic(t, 2)
	fake.ControlKey(kmsg.ListOffsets.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		return req.ResponseKind(), nil, true
	})
	ends := c.LogEnds(testContext(t), allTPs(2))
	for _, tp := range allTPs(2) {
		if r := ends[tp]; !errors.Is(r.Err, ErrMissing) || r.Offset != -1 {
			t.Errorf("%+v", r)
		}
	}
}

func TestRead(t *testing.T) {
	_, c, m := fakeWithTopic(t, 1)
	ctx := testContext(t)
	conn := dialLeader(t, c, m, 0)
	batch := testBatch(10, recordbatch.Identity{ProducerID: testProducer})
	mustProduce(t, conn, 0, batch)
	for _, id := range []mirror.TopicID{{}, m.Topics["t"].ID} {
		at := TP{Topic: "t", TopicID: id, LeaderEpoch: -1}
		f, err := c.Read(ctx, at, 4, ReadOptions{})
		if err != nil || f.HighWatermark != 10 || f.LogStart != 0 || f.LastStable != 10 || !bytes.Equal(f.Bytes[16:], batch[16:]) {
			t.Errorf("read: %+v, %v", f, err)
		}
		if f, err := c.Read(ctx, at, 10, ReadOptions{Isolation: ReadCommitted}); err != nil || len(f.Bytes) != 0 {
			t.Errorf("at the end: %+v, %v", f, err)
		}
		if _, err := c.Read(ctx, at, 11, ReadOptions{}); !OutOfRange(err) {
			t.Errorf("beyond: %v", err)
		}
	}
	if _, err := c.Read(ctx, TP{Topic: "nowhere", LeaderEpoch: -1}, 0, ReadOptions{}); !UnknownTopic(err) {
		t.Errorf("no such topic: %v", err)
	}
}

// A connection that ended while nobody used it is replaced: reads only.
func TestLookReplacesAnEndedConnection(t *testing.T) {
	_, c, _ := fakeWithTopic(t, 1)
	ctx := testContext(t)
	if r := c.LogEnds(ctx, []TP{tp(0)})[tp(0)]; r.Err != nil {
		t.Fatal(r.Err)
	}
	c.lanes.each(func(_ laneKey, conn *Conn) { conn.conn.Close() })
	if r := c.LogEnds(ctx, []TP{tp(0)})[tp(0)]; r.Err != nil {
		t.Error(r.Err)
	}
}
