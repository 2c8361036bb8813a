package fetcher

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// transact runs transactions on one partition of the source; every third is aborted.
func (r *rig) transact(topic string, n int) {
	r.t.Helper()
	cl := client(r.t, r.src, kgo.TransactionalID(topic))
	for i := range n {
		if err := cl.BeginTransaction(); err != nil {
			r.t.Fatal(err)
		}
		for j := range 3 {
			if err := cl.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%d-%d", i, j)}).FirstErr(); err != nil {
				r.t.Fatal(err)
			}
		}
		if err := cl.EndTransaction(context.Background(), kgo.TransactionEndTry(i%3 != 2)); err != nil {
			r.t.Fatal(err)
		}
	}
}

func TestPool_CommittedTransactions(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 1})
	pool, _ := r.pool()
	pool.Reconcile(r.targets("t"))
	r.transact("t", 12)
	r.level("t", 1)
	r.same("t", 1)
}

func (r *rig) trimSource(topic string, to int64) {
	r.t.Helper()
	if err := r.src.DeleteRecords(topic, 0, to); err != nil {
		r.t.Fatal(err)
	}
}

// begins waits for the destination's log start.
func (r *rig) begins(topic string, want int64) {
	r.t.Helper()
	eventually(r.t, 10*time.Second, func() error {
		if start := r.dst.PartitionInfo(topic, 0).LogStartOffset; start != want {
			return fmt.Errorf("destination begins at %d, want %d", start, want)
		}
		return nil
	})
}

func TestR13_SeedingLeavesNothingReadable(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 1})
	r.write("t", 1, 0, 100)
	r.trimSource("t", 60)
	pool, _ := r.pool()
	pool.Reconcile(r.targets("t"))
	r.level("t", 1)
	r.begins("t", 60)
	r.same("t", 1)
}

func TestPool_TrimFollowsTheSourceAndNeverPassesIt(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 1})
	r.write("t", 1, 0, 100)
	pool, _ := r.pool()
	pool.Reconcile(r.targets("t"))
	r.level("t", 1)
	for _, to := range []int64{10, 40, 100} {
		r.trimSource("t", to)
		eventually(t, 10*time.Second, func() error {
			start := r.dst.PartitionInfo("t", 0).LogStartOffset
			if start > to {
				t.Fatalf("destination begins at %d, the source at %d", start, to)
			}
			if start < to {
				return fmt.Errorf("destination begins at %d, want %d", start, to)
			}
			return nil
		})
	}
}

// overtake stops a mirror at 100, writes on, and lets the source begin at 150.
func (r *rig) overtake() (pool *Pool, ts []mirror.Target) {
	r.t.Helper()
	r.write("t", 1, 0, 100)
	pool, stop := r.pool()
	pool.Reconcile(r.targets("t"))
	r.level("t", 1)
	stop()
	r.write("t", 1, 100, 100)
	r.trimSource("t", 150)
	pool, _ = r.pool()
	return pool, r.targets("t")
}

func TestPool_OvertakenGoesOnAndCounts(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 1})
	pool, ts := r.overtake()
	pool.Reconcile(ts)
	r.level("t", 1)
	r.begins("t", 150)
	r.same("t", 1)
	stats := pool.metrics.topic("east", "t")
	if n := stats.lostRecords.Load(); n != 50 {
		t.Errorf("%d lost records counted, want 50", n)
	}
	if n := stats.filledOffsets[lost].Load(); n != 50 {
		t.Errorf("%d filled offsets counted as lost, want 50", n)
	}
}

func TestPool_OvertakenFailsIfAsked(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 1})
	r.mirror.OnLostRange = mirror.Fail
	pool, ts := r.overtake()
	pool.Reconcile(ts)
	eventually(t, 10*time.Second, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		err := r.failures[ts[0].Partition]
		if err == nil {
			return fmt.Errorf("not failed")
		}
		if want := "the records of offsets 100 to 149 expired at the source before they were copied; recover the topic to go on without them"; err.Error() != want || mirror.KindOf(err) != mirror.LostRange {
			t.Fatalf("failure %q of kind %v", err, mirror.KindOf(err))
		}
		delete(r.failures, ts[0].Partition)
		return nil
	})
	if n := r.dst.PartitionInfo("t", 0).HighWatermark; n != 100 {
		t.Errorf("destination ends at %d while failed, want 100", n)
	}
	ts[0].StateEpoch, ts[0].AcceptLostRange = 2, true
	pool.Reconcile(ts)
	r.level("t", 1)
	r.begins("t", 150)
	r.same("t", 1)
}

func TestMetrics_SeriesFollowOwnership(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 2})
	r.write("t", 2, 0, 50)
	pool, _ := r.pool()
	pool.Reconcile(r.targets("t"))
	r.level("t", 2)
	eventually(t, 5*time.Second, func() error {
		for name, want := range map[string]int{"mirrord_partition_lag_records": 2, "mirrord_partition_lag_seconds": 2, "mirrord_partition_offset": 4, "mirrord_lost_records_total": 1, "mirrord_filled_offsets_total": int(reasons)} {
			if got := r.series(name); got != want {
				return fmt.Errorf("%d series of %s, want %d", got, name, want)
			}
		}
		if n := pool.metrics.topic("east", "t").producedRecords.Load(); n != 100 {
			return fmt.Errorf("%d records counted, want 100", n)
		}
		return nil
	})
	pool.Reconcile(nil)
	eventually(t, 5*time.Second, func() error {
		if got := r.series("mirrord_partition_lag_records") + r.series("mirrord_produced_records_total"); got != 0 {
			return fmt.Errorf("%d series of partitions that are not here", got)
		}
		return nil
	})
}

// series counts the series of a metric.
func (r *rig) series(name string) int {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return len(f.GetMetric())
		}
	}
	return 0
}

// Two million offsets expire at the source; by empty transactions they would take two hours. The estimate and the right that
// would help are told at once.
func TestR12_AHoleTooLongForTransactionsFailsAtOnce(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 1})
	r.mirror.FillersMode = mirror.Transactions
	r.write("t", 1, 0, 100)
	pool, _ := r.pool()
	ts := r.targets("t")
	pool.Reconcile(ts)
	r.level("t", 1)
	ts[0].Run = false
	pool.Reconcile(ts)
	b := fillerBatch(t, recordbatch.MaxFiller)
	for range 2 {
		store(t, r.source, kafka.TP{Topic: "t", TopicID: ts[0].TopicID, LeaderEpoch: -1}, b)
	}
	r.trimSource("t", 2_000_100)
	ts = r.targets("t")
	pool.Reconcile(ts)
	eventually(t, 4*time.Second, func() error { // less than a doubt takes to be cleared up (protocol R11)
		r.mu.Lock()
		defer r.mu.Unlock()
		err := r.failures[ts[0].Partition]
		want := "filling offsets 100 to 2000099 by empty transactions would take about 1h48m0s; grant mirrord ALTER on the destination cluster and set fillers: markers"
		if err == nil {
			return errors.New("not failed")
		}
		if err.Error() != want {
			t.Fatalf("failure %v, want %s", err, want)
		}
		return nil
	})
}
