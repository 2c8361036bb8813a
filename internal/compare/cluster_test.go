package compare

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// live is two clusters behind real protocol code.
type live struct {
	t        *testing.T
	src, dst *kafka.Cluster
}

func newLive(t *testing.T) live {
	return live{t, open(t, startFake(t)), open(t, startFake(t))}
}

func startFake(t *testing.T, opts ...kfake.Opt) string {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0]
}

func open(t *testing.T, address string) *kafka.Cluster {
	t.Helper()
	c, err := kafka.Open(kafka.Config{Connection: mirror.Connection{BootstrapServers: []string{address}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (l live) ctx() context.Context {
	ctx, cancel := context.WithTimeout(l.t.Context(), 30*time.Second)
	l.t.Cleanup(cancel)
	return ctx
}

// create makes a topic on both sides and gives its targets.
func (l live) create(topic string, partitions int32, configs map[string]string) (ts []mirror.Target) {
	l.t.Helper()
	var ids []mirror.TopicID
	configs = maps.Clone(configs)
	if configs == nil {
		configs = map[string]string{}
	}
	configs["retention.ms"] = "-1" // the records are old
	for _, c := range []*kafka.Cluster{l.src, l.dst} {
		id, err := c.CreateTopic(l.ctx(), kafka.TopicSpec{Name: topic, Partitions: partitions, ReplicationFactor: 1, Configs: configs})
		if err != nil {
			l.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for i := range partitions {
		ts = append(ts, mirror.Target{
			Partition: mirror.Partition{Mirror: "east", TopicID: ids[0], Index: i}, Topic: topic,
			DestinationID: ids[1], Source: mirror.NoPosition,
		})
	}
	return ts
}

// produce writes records [from, to), each the same wherever it is written.
func (l live) produce(c *kafka.Cluster, topic string, partition int32, span [2]int, value string) {
	l.t.Helper()
	l.transact(c, "", true, topic, partition, span, value)
}

// transact is produce within a transaction of id; "": within none.
func (l live) transact(c *kafka.Cluster, id string, commit bool, topic string, partition int32, span [2]int, value string) {
	l.t.Helper()
	opts := append(c.Opts(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if id != "" {
		opts = append(opts, kgo.TransactionalID(id))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		l.t.Fatal(err)
	}
	defer cl.Close()
	var records []*kgo.Record
	for i := span[0]; i < span[1]; i++ {
		records = append(records, &kgo.Record{
			Topic: topic, Partition: partition, Key: fmt.Appendf(nil, "k%d", i), Value: []byte(value),
			Timestamp: time.UnixMilli(1_700_000_000_000 + int64(i)),
		})
	}
	if id != "" {
		if err := cl.BeginTransaction(); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := cl.ProduceSync(l.ctx(), records...).FirstErr(); err != nil {
		l.t.Fatal(err)
	}
	if id != "" {
		if err := cl.EndTransaction(l.ctx(), kgo.TransactionEndTry(commit)); err != nil {
			l.t.Fatal(err)
		}
	}
}

func TestClustersAlign(t *testing.T) {
	l := newLive(t)
	ts := l.create("t", 4, nil)
	for i := range int32(3) {
		l.produce(l.src, "t", i, [2]int{0, 1000}, "v")
		l.produce(l.dst, "t", i, [2]int{0, 700}, "v")
	}
	l.produce(l.dst, "t", 1, [2]int{700, 750}, "lost")
	l.produce(l.dst, "t", 3, [2]int{0, 5}, "foreign")
	for name, all := range map[string][]Alignment{"align": Align(l.ctx(), l.src, l.dst, ts, nil), "tail": Tail(l.ctx(), l.src, l.dst, ts)} {
		for _, i := range []int{0, 2} {
			if a := all[i]; a.Err != nil || a.DestinationEnd != 700 || a.SourceEnd != 1000 {
				t.Errorf("%s: partition %d: %+v", name, i, a)
			}
		}
		wantKind(t, all[1].Err, mirror.Diverged)
		mentions(t, all[1].Err, "offset 700", "50 records")
		wantKind(t, all[3].Err, mirror.Diverged)
		mentions(t, all[3].Err, "offset 0", "5 records")
	}
	ts[0].DestinationID[0] ^= 1
	if a := Align(l.ctx(), l.src, l.dst, ts[:1], nil)[0]; a.Err == nil {
		t.Error("another topic of the same name was compared")
	}
}

// A source older than 2.8 gives no topic ids; the target then has one of mirrord's making.
func TestOldSourcesAreReadByName(t *testing.T) {
	l := live{t, open(t, startFake(t, kfake.MaxVersions(kversion.V2_4_0()))), open(t, startFake(t))}
	ts := l.create("t", 1, nil)
	l.produce(l.src, "t", 0, [2]int{0, 100}, "v")
	l.produce(l.dst, "t", 0, [2]int{0, 70}, "v")
	ts[0].TopicID = mirror.TopicID{1, 2, 3}
	for name, all := range map[string][]Alignment{"align": Align(l.ctx(), l.src, l.dst, ts, nil), "tail": Tail(l.ctx(), l.src, l.dst, ts)} {
		if a := all[0]; a.Err != nil || a.SourceEnd != 100 || a.DestinationEnd != 70 {
			t.Errorf("%s: %+v", name, a)
		}
	}
	source := func(string) mirror.TopicID { return mirror.TopicID{1, 2, 3} }
	rows, err := Verify(l.ctx(), l.src, l.dst, "east", []string{"t"}, Options{Source: source})
	if err != nil || len(rows) != 1 || !rows[0].Equal || rows[0].Records != 70 {
		t.Errorf("%+v, %v", rows, err)
	}
}

func TestClustersVerify(t *testing.T) {
	l := newLive(t)
	l.create("plain", 2, nil)
	l.create("keyed", 1, map[string]string{"cleanup.policy": "compact"})
	for _, c := range []*kafka.Cluster{l.src, l.dst} {
		for i := range int32(2) {
			l.produce(c, "plain", i, [2]int{0, 300}, "v")
		}
		l.transact(c, "x", true, "plain", 0, [2]int{0, 20}, "committed")
		l.transact(c, "x", false, "plain", 0, [2]int{0, 20}, "aborted")
		l.produce(c, "plain", 0, [2]int{0, 5}, "end")
		l.produce(c, "keyed", 0, [2]int{0, 50}, "v")
	}
	rows, err := Verify(l.ctx(), l.src, l.dst, "east", []string{"plain", "keyed"}, Options{Full: true})
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, want := range []int64{50, 325, 300} {
		if r := rows[i]; !r.Equal || r.Records != want || r.FirstDifference != -1 {
			t.Errorf("%+v, want %d records", r, want)
		}
	}
	l.produce(l.src, "plain", 1, [2]int{300, 301}, "v")
	l.produce(l.dst, "plain", 1, [2]int{300, 302}, "planted")
	rows, err = Verify(l.ctx(), l.src, l.dst, "east", []string{"plain", "absent"}, Options{})
	if err != nil || len(rows) != 3 {
		t.Fatalf("%+v, %v", rows, err)
	}
	if r := rows[0]; r.Topic != "absent" || r.Equal {
		t.Errorf("%+v", r)
	}
	if r := rows[2]; r.Equal || r.FirstDifference != 300 || !strings.Contains(r.Detail, "1 more") {
		t.Errorf("%+v", r)
	}
	var out strings.Builder
	n, err := Export(l.ctx(), l.dst, kafka.TP{Topic: "plain", Partition: 1, LeaderEpoch: -1}, 300, -1, &out)
	if err != nil || n != 2 || strings.Count(out.String(), "planted") != 2 {
		t.Errorf("%d exported, %v: %s", n, err, out.String())
	}
}
