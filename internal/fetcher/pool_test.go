package fetcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"mirrord/internal/compare"
	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is two clusters and pools between them.
type rig struct {
	t            *testing.T
	src, dst     *kfake.Cluster
	source, dest *kafka.Cluster
	mirror       *mirror.Resolved
	mu           sync.Mutex
	failures     map[mirror.Partition]error
	lease        error
	log          *slog.Logger
	registry     *prometheus.Registry
	compared     atomic.Int32 // partitions that were compared
}

func newRig(t *testing.T, topics map[string]int32) *rig {
	t.Helper()
	r := &rig{t: t, failures: map[mirror.Partition]error{}, log: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))}
	fake := func(name string) *kfake.Cluster {
		c, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.ClusterID(name), kfake.SleepOutOfOrder())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		for topic, n := range topics {
			if err := c.CreateTopic(topic, n, nil); err != nil {
				t.Fatal(err)
			}
		}
		return c
	}
	r.src, r.dst = fake("source"), fake("destination")
	r.source, r.dest = open(t, r.src), open(t, r.dst)
	def := mirror.DefaultDefinition("east")
	r.mirror = &mirror.Resolved{Definition: def, TransactionsMode: mirror.Committed, FillersMode: mirror.Markers}
	return r
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	if os.Getenv("MIRRORD_TEST_LOG") != "" {
		w.t.Log(string(bytes.TrimSpace(p)))
	}
	return len(p), nil
}

func open(t *testing.T, c *kfake.Cluster) *kafka.Cluster {
	t.Helper()
	cl, err := kafka.Open(kafka.Config{Connection: mirror.Connection{BootstrapServers: c.ListenAddrs()}, RequestTimeout: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// pool starts a pool; its end is awaited before the test ends.
func (r *rig) pool() (*Pool, func()) {
	r.t.Helper()
	cfg := DefaultConfig()
	cfg.RequestTimeout, cfg.MaxWait, cfg.TakeoverWait = 3*time.Second, 100*time.Millisecond, 100*time.Millisecond
	r.registry = prometheus.NewRegistry()
	pool := NewPool(cfg, Deps{
		Destination: r.dest,
		Source:      func(*mirror.Resolved) (*kafka.Cluster, error) { return r.source, nil },
		Lease:       func() error { r.mu.Lock(); defer r.mu.Unlock(); return r.lease },
		Failed: func(t mirror.Target, err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.failures[t.Partition] = err
		},
		Tail: func(ctx context.Context, src, dst *kafka.Cluster, ts []mirror.Target) []compare.Alignment {
			r.compared.Add(int32(len(ts)))
			return compare.Tail(ctx, src, dst, ts)
		},
		Log:        r.log,
		Registerer: r.registry,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); pool.Run(ctx) }()
	var once sync.Once
	stop := func() { once.Do(func() { cancel(); <-done }) }
	r.t.Cleanup(stop)
	return pool, stop
}

// targets are all partitions of topics, to be mirrored.
func (r *rig) targets(topics ...string) (ts []mirror.Target) {
	r.t.Helper()
	src, err := r.source.Metadata(context.Background(), topics...)
	if err != nil {
		r.t.Fatal(err)
	}
	dst, err := r.dest.Metadata(context.Background(), topics...)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, name := range topics {
		for _, p := range src.Topics[name].Partitions {
			ts = append(ts, mirror.Target{
				Partition: mirror.Partition{Mirror: r.mirror.Name, TopicID: src.Topics[name].ID, Index: p.Index}, Topic: name,
				DestinationID: dst.Topics[name].ID, Mirror: r.mirror, State: mirror.Mirroring, StateEpoch: 1, Run: true, Claim: 1, Source: mirror.NoPosition,
			})
		}
	}
	return ts
}

func client(t *testing.T, c *kfake.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// write produces n records to each partition, in several batches.
func (r *rig) write(topic string, partitions, first, n int) {
	r.t.Helper()
	cl := client(r.t, r.src, kgo.ProducerLinger(0))
	defer cl.Close()
	for from := first; from < first+n; from += 10 {
		var rs []*kgo.Record
		for p := range partitions {
			for i := from; i < min(from+10, first+n); i++ {
				rs = append(rs, &kgo.Record{Topic: topic, Partition: int32(p), Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)})
			}
		}
		if err := cl.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
			r.t.Fatal(err)
		}
	}
}

// eventually polls until f gives no error.
func eventually(t *testing.T, limit time.Duration, f func() error) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// level waits until the ends of a topic are equal.
func (r *rig) level(topic string, partitions int) {
	r.t.Helper()
	eventually(r.t, 20*time.Second, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for p, err := range r.failures {
			return fmt.Errorf("%v failed: %w", p, err)
		}
		for p := range partitions {
			s, d := r.src.PartitionInfo(topic, int32(p)), r.dst.PartitionInfo(topic, int32(p))
			if s.HighWatermark != d.HighWatermark {
				return fmt.Errorf("partition %d: source %d, destination %d", p, s.HighWatermark, d.HighWatermark)
			}
		}
		return nil
	})
}

// same demands that both sides hold the same records at the same offsets.
func (r *rig) same(topic string, partitions int) {
	r.t.Helper()
	s, d := records(r.t, r.src, topic, partitions), records(r.t, r.dst, topic, partitions)
	if len(s) != len(d) {
		r.t.Fatalf("source has %d records, destination %d", len(s), len(d))
	}
	for key, value := range s {
		if d[key] != value {
			r.t.Fatalf("at %s: source %q, destination %q", key, value, d[key])
		}
	}
}

func records(t *testing.T, c *kfake.Cluster, topic string, partitions int) map[string]string {
	t.Helper()
	offsets, ends := map[int32]kgo.Offset{}, map[int32]int64{}
	for p := range partitions {
		info := c.PartitionInfo(topic, int32(p))
		if info.HighWatermark > info.LogStartOffset {
			offsets[int32(p)] = kgo.NewOffset().At(info.LogStartOffset)
			ends[int32(p)] = info.LastStableOffset
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	found := map[string]string{}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for len(ends) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(errors.Join(err, fmt.Errorf("left: %v", ends)))
		}
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				found[fmt.Sprintf("%d/%d", r.Partition, r.Offset)] = fmt.Sprintf("%s=%s@%d", r.Key, r.Value, r.Timestamp.UnixMilli())
			}
			if r.Offset+1 >= ends[r.Partition] {
				delete(ends, r.Partition)
			}
		})
	}
	return found
}

func TestPool_CopiesPlainTopics(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 6})
	r.write("t", 6, 0, 300)
	pool, stop := r.pool()
	pool.Reconcile(r.targets("t"))
	r.level("t", 6)
	r.write("t", 6, 300, 50)
	r.level("t", 6)
	r.same("t", 6)
	stop()
}

func TestPool_FollowsLeadersOnBothSides(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 4})
	pool, _ := r.pool()
	pool.Reconcile(r.targets("t"))
	for i := range 20 {
		r.write("t", 4, i*20, 20)
		for p := range int32(4) {
			move(t, r.src, "t", p)
			move(t, r.dst, "t", p)
		}
	}
	r.level("t", 4)
	r.same("t", 4)
}

// move gives a partition another leader.
func move(t *testing.T, c *kfake.Cluster, topic string, p int32) {
	t.Helper()
	if err := c.MoveTopicPartition(topic, p, (c.LeaderFor(topic, p)+1)%3); err != nil {
		t.Fatal(err)
	}
}

func TestPool_LostAnswers(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 1})
	pool, _ := r.pool()
	pool.Reconcile(r.targets("t"))
	for i := range 15 {
		r.dst.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 1})
		r.write("t", 1, i*20, 20)
		r.level("t", 1)
	}
	r.same("t", 1)
}

func TestPool_PauseDrainsAndResumeGoesOn(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 2})
	r.write("t", 2, 0, 500)
	pool, _ := r.pool()
	ts := r.targets("t")
	pool.Reconcile(ts)
	paused := append([]mirror.Target(nil), ts...)
	for i := range paused {
		paused[i].Run, paused[i].State, paused[i].StateEpoch = false, mirror.Pausing, 2
	}
	pool.Reconcile(paused)
	eventually(t, 5*time.Second, func() error {
		for _, p := range pool.Positions() {
			if !p.Drained || p.StateEpoch != 2 {
				return fmt.Errorf("not drained: %+v", p)
			}
		}
		return nil
	})
	r.write("t", 2, 500, 100)
	eventually(t, 10*time.Second, func() error { // watched, so that lag stays true
		for _, p := range pool.Positions() {
			if p.SourceOffset != 600 || p.DestinationOffset != r.dst.PartitionInfo("t", p.Index).HighWatermark {
				return fmt.Errorf("position %+v", p)
			}
		}
		return nil
	})
	for i := range ts {
		ts[i].StateEpoch = 3
	}
	pool.Reconcile(ts)
	r.level("t", 2)
	r.same("t", 2)
}

func TestR16_NothingIsWrittenWithoutALease(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 1})
	r.write("t", 1, 0, 10)
	r.lease = errors.New("lease ended")
	pool, _ := r.pool()
	pool.Reconcile(r.targets("t"))
	produced := r.dst.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Observe: true})
	eventually(t, 5*time.Second, func() error {
		if p := pool.Positions(); len(p) == 0 || p[0].SourceOffset != 10 {
			return fmt.Errorf("position %+v", p)
		}
		return nil
	})
	r.mu.Lock()
	if n := produced.Hits(); n != 0 {
		t.Errorf("%d Produce requests without a lease", n)
	}
	r.lease = nil
	r.mu.Unlock()
	r.level("t", 1)
	r.same("t", 1)
}

func TestR9_AnotherDestinationTopicFails(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 1})
	pool, _ := r.pool()
	r.write("t", 1, 0, 10)
	pool.Reconcile(r.targets("t"))
	r.level("t", 1)
	if err := r.dst.DeleteTopic("t"); err != nil {
		t.Fatal(err)
	}
	if err := r.dst.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	r.write("t", 1, 10, 10)
	eventually(t, 20*time.Second, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, err := range r.failures {
			if mirror.KindOf(err) != mirror.DestinationGone {
				t.Errorf("failure %v is of kind %v", err, mirror.KindOf(err))
			}
			return nil
		}
		return errors.New("not failed")
	})
	if n := r.dst.PartitionInfo("t", 0).HighWatermark; n != 0 {
		t.Errorf("%d records were written into a topic of another id", n)
	}
}

func TestR21_ForeignWriteIsFoundBeforeTheNextAppend(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 1})
	pool, _ := r.pool()
	r.write("t", 1, 0, 100)
	pool.Reconcile(r.targets("t"))
	r.level("t", 1)
	<-time.After(2 * idleLook)
	cl := client(t, r.dst)
	if err := cl.ProduceSync(context.Background(), &kgo.Record{Topic: "t", Value: []byte("stray")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r.write("t", 1, 100, 10)
	eventually(t, 10*time.Second, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, err := range r.failures {
			if mirror.KindOf(err) != mirror.IdentityBroken || !strings.Contains(err.Error(), "100") || !strings.Contains(err.Error(), "101") {
				t.Errorf("failure %v is of kind %v", err, mirror.KindOf(err))
			}
			return nil
		}
		return errors.New("not failed")
	})
	if n := r.dst.PartitionInfo("t", 0).HighWatermark; n != 101 {
		t.Errorf("destination ends at %d, want 101", n)
	}
}

// Offsets have no ids: those of another cluster at the source's address are not taken for the source's.
func TestOnlyTheSourceItselfTellsWhereItEnds(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 1})
	r.write("t", 1, 0, 30)
	targets := r.targets("t")
	pool := NewPool(DefaultConfig(), Deps{
		Destination: r.dest, Source: func(*mirror.Resolved) (*kafka.Cluster, error) { return r.source, nil },
		Lease: func() error { return nil }, Log: r.log, Registerer: prometheus.NewRegistry(),
	})
	for cluster, end := range map[string]int64{"another": -1, "source": 30} {
		m := *r.mirror
		m.Name, m.ClusterID = cluster, cluster
		targets[0].Partition.Mirror, targets[0].Mirror, targets[0].State, targets[0].Run = m.Name, &m, mirror.Paused, false
		pool.apply(targets)
		pool.watchStill(t.Context())
		if p := pool.Positions()[0]; p.SourceOffset != end || p.DestinationOffset != 0 {
			t.Errorf("cluster %q is meant: source %d, destination %d, want %d and 0", cluster, p.SourceOffset, p.DestinationOffset, end)
		}
	}
}
