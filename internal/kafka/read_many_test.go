package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"mirrord/internal/recordbatch"
)

func TestReadManyAgreesWithRead(t *testing.T) {
	_, c, m := fakeWithTopic(t, 100, kfake.NumBrokers(3))
	ctx := testContext(t)
	var at []ReadAt
	for p := range int32(100) {
		if p%3 == 0 {
			mustProduce(t, dialLeader(t, c, m, p), p, testBatch(p+1, recordbatch.Identity{ProducerID: testProducer}))
		}
		at = append(at, ReadAt{TP: tp(p), Offset: 0, MaxBytes: 1 << 20})
	}
	at = append(at, ReadAt{TP: TP{Topic: "nowhere", LeaderEpoch: -1}}, ReadAt{TP: tp(777)})
	many := c.ReadMany(ctx, at, ReadOptions{MaxBytes: 8 << 20})
	for p := range int32(100) {
		f := many[tp(p)]
		one, err := c.Read(ctx, tp(p), 0, ReadOptions{})
		if err != nil || f.Err != nil || string(f.Bytes) != string(one.Bytes) || f.HighWatermark != one.HighWatermark {
			t.Errorf("partition %d: %d bytes, %v; alone %d bytes, %v", p, len(f.Bytes), f.Err, len(one.Bytes), err)
		}
	}
	for _, missing := range at[100:] {
		if !UnknownTopic(many[missing.TP].Err) {
			t.Errorf("%s: %v", missing.TP, many[missing.TP].Err)
		}
	}
	beyond := c.ReadMany(ctx, []ReadAt{{TP: tp(0), Offset: 99, MaxBytes: 1}, {TP: tp(3), Offset: 1, MaxBytes: 1}}, ReadOptions{})
	if !OutOfRange(beyond[tp(0)].Err) || beyond[tp(3)].Err != nil || len(beyond[tp(3)].Bytes) == 0 {
		t.Errorf("%+v", beyond)
	}
}
