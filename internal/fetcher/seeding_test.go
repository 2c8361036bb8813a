package fetcher

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// seeded leaves count fillers in a destination partition, as an instance that was killed does.
func (r *rig) seeded(t mirror.Target, id int64, sequence, count int32) {
	r.t.Helper()
	b := fillerBatch(r.t, count)
	b.Patch(recordbatch.Identity{ProducerID: id, Sequence: sequence}, false)
	store(r.t, r.dest, kafka.TP{Topic: t.Topic, TopicID: t.DestinationID, Partition: t.Index, LeaderEpoch: -1}, b)
}

func fillerBatch(t *testing.T, count int32) recordbatch.Batch {
	t.Helper()
	b, err := recordbatch.Filler(kafka.Codec, count, time.Now().UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// store appends a batch as it is.
func store(t *testing.T, c *kafka.Cluster, tp kafka.TP, b recordbatch.Batch) {
	t.Helper()
	ctx := context.Background()
	conn, err := c.Dial(ctx, c.Resume(ctx, []kafka.TP{tp})[tp].Broker)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	results, err := conn.SendProduce(&kafka.ProduceRequest{Timeout: time.Second, Topics: []kafka.ProduceTopic{{
		Name: tp.Topic, ID: tp.TopicID, Partitions: []kafka.ProducePartition{{Index: tp.Partition, Batch: b}},
	}}}).Produced()
	if err != nil || results[0].Err != nil {
		t.Fatal(err, results)
	}
}

func (r *rig) trimDestination(topic string, to int64) {
	r.t.Helper()
	if err := r.dst.DeleteRecords(topic, 0, to); err != nil {
		r.t.Fatal(err)
	}
}

// produce appends a record of an application to the destination.
func (r *rig) produce(topic string) {
	r.t.Helper()
	cl := client(r.t, r.dst)
	defer cl.Close()
	if err := cl.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Value: []byte("application")}).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
}

func TestR13_SweepRemovesNothingButFillers(t *testing.T) {
	const ours = mirror.IdentityProducerIDs + 5
	for _, c := range []struct {
		name       string
		log        func(r *rig, to mirror.Target)
		start, end int64
	}{
		{"empty", func(*rig, mirror.Target) {}, 0, 0},
		{"fillers", func(r *rig, to mirror.Target) { r.seeded(to, ours, 0, 1000); r.seeded(to, ours, 1000, 7) }, 1007, 1007},
		{"fillers behind a trimmed seeding", func(r *rig, to mirror.Target) {
			r.seeded(to, ours, 0, 1000)
			r.trimDestination("t", 1000)
			r.seeded(to, ours, 1000, 7)
		}, 1007, 1007},
		{"a record behind fillers", func(r *rig, to mirror.Target) { r.seeded(to, ours, 0, 1000); r.produce("t") }, 0, 1001},
		{"a record before fillers", func(r *rig, to mirror.Target) { r.produce("t"); r.seeded(to, ours, 0, 1000) }, 0, 1001},
		{"fillers of somebody else", func(r *rig, to mirror.Target) { r.seeded(to, 5, 0, 1000) }, 0, 1000},
		{"a record", func(r *rig, _ mirror.Target) { r.produce("t") }, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, map[string]int32{"t": 1})
			ts := r.targets("t")
			c.log(r, ts[0])
			pool, _ := r.pool()
			for range 2 { // it can be repeated
				if err := pool.Sweep(context.Background(), ts)[0]; err != nil {
					t.Fatal(err)
				}
			}
			if at := r.dst.PartitionInfo("t", 0); at.LogStartOffset != c.start || at.HighWatermark != c.end {
				t.Errorf("the log is [%d, %d), want [%d, %d)", at.LogStartOffset, at.HighWatermark, c.start, c.end)
			}
		})
	}
}

// What an interrupted seeding has left is gone on with; where records of the source were mirrored before, they are lost.
func TestR13_ACutSeedingIsNoLostRange(t *testing.T) {
	for _, c := range []struct {
		name    string
		trimmed bool            // by a stop in order
		epoch   mirror.Position // of the source, as it was last mirrored
		lost    uint64
	}{
		{"killed", false, mirror.NoPosition, 0},
		{"stopped", true, mirror.NoPosition, 0},
		{"stopped in a topic that was recreated", true, mirror.Position{LeaderEpoch: 0, Offset: 50}, 0},
		{"mirrored before", true, mirror.Position{LeaderEpoch: 0, Offset: 10}, 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, map[string]int32{"t": 1})
			r.write("t", 1, 0, 100)
			r.trimSource("t", 60)
			ts := r.targets("t")
			ts[0].Source = c.epoch
			r.seeded(ts[0], mirror.IdentityID("east", ts[0].TopicID, 0), 0, 40)
			if c.trimmed {
				r.trimDestination("t", 40)
			}
			pool, _ := r.pool()
			pool.Reconcile(ts)
			r.level("t", 1)
			r.begins("t", 60)
			r.same("t", 1)
			if n := pool.metrics.topic("east", "t").lostRecords.Load(); n != c.lost {
				t.Errorf("%d records told lost, want %d", n, c.lost)
			}
			if n := pool.metrics.topic("east", "t").filledOffsets[lost].Load(); n != c.lost {
				t.Errorf("%d offsets filled one by one, want %d", n, c.lost)
			}
		})
	}
}

// A partition that was never looked at may hold fillers: where it ends is no mirrored position.
func TestR13_OnlyALookTellsHowFarWasMirrored(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 1})
	r.write("t", 1, 0, 100)
	pool, _ := r.pool()
	ts := r.targets("t")
	ts[0].Run = false
	pool.Reconcile(ts)
	unlocated := func(want bool) {
		t.Helper()
		eventually(t, 10*time.Second, func() error {
			if at := pool.Positions(); len(at) != 1 || at[0].Unlocated != want {
				return fmt.Errorf("%+v, want unlocated %v", at, want)
			}
			return nil
		})
	}
	unlocated(true)
	ts = r.targets("t")
	pool.Reconcile(ts)
	r.level("t", 1)
	unlocated(false)
	ts[0].DestinationID, ts[0].Run = mirror.TopicID{9}, false
	pool.Reconcile(ts)
	unlocated(true)
}

// Somebody has given a topic its policy back while it is full of fillers: it is suspended again, and returned.
func TestR13_FillersOfACompactedTopicAreRemoved(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, map[string]int32{"t": 1})
	ts := r.targets("t")
	r.seeded(ts[0], mirror.IdentityProducerIDs+5, 0, 1000)
	if err := r.dest.AlterTopicConfigs(ctx, []kafka.ConfigChange{{Topic: "t", Set: map[string]string{cleanupPolicy: "compact"}}})["t"]; err != nil {
		t.Fatal(err)
	}
	r.dst.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DeleteRecords}, Topic: "t", Err: kerr.PolicyViolation})
	policy := func() string { return r.dest.TopicConfigs(ctx, "t")["t"].Entries[cleanupPolicy].Value }
	pool, _ := r.pool()
	if err := pool.Sweep(ctx, ts)[0]; mirror.KindOf(err) != mirror.Retriable || policy() != "delete" {
		t.Fatalf("%v under %s, want to try again under delete", err, policy())
	}
	if err := pool.Sweep(ctx, ts)[0]; err != nil || policy() != "compact" {
		t.Errorf("%v, cleanup.policy is %s", err, policy())
	}
	if at := r.dst.PartitionInfo("t", 0); at.LogStartOffset != 1000 {
		t.Errorf("the log begins at %d", at.LogStartOffset)
	}
}
