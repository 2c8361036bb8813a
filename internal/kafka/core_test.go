package kafka

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"
	"go.uber.org/goleak"

	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const within = 20 * time.Second

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	t.Cleanup(cancel)
	return ctx
}

// startFake runs a fake cluster of the newest version that Kafka serves widely.
func startFake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	fake, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.MaxVersions(kversion.V4_0_0())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return fake
}

func openCluster(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = 3 * time.Second
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = time.Second
	}
	c, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func openFake(t *testing.T, fake *kfake.Cluster) *Cluster {
	return openCluster(t, Config{Connection: mirror.Connection{BootstrapServers: fake.ListenAddrs()}})
}

// fakeWithTopic is a cluster of one broker with the topic "t" of some partitions, and its metadata.
func fakeWithTopic(t *testing.T, partitions int32, opts ...kfake.Opt) (*kfake.Cluster, *Cluster, Metadata) {
	t.Helper()
	fake := startFake(t, append(opts, kfake.SeedTopics(partitions, "t"))...)
	c := openFake(t, fake)
	m, err := c.Metadata(testContext(t), "t")
	if err != nil {
		t.Fatal(err)
	}
	return fake, c, m
}

func dialLeader(t *testing.T, c *Cluster, m Metadata, partition int32) *Conn {
	t.Helper()
	p, ok := m.Topics["t"].Partition(partition)
	if !ok {
		t.Fatalf("no partition %d", partition)
	}
	conn, err := c.Dial(testContext(t), p.Leader)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// testBatch has count records and an identity.
func testBatch(count int32, id recordbatch.Identity) []byte {
	b, err := recordbatch.Filler(Codec, count, time.Now().UnixMilli())
	if err != nil {
		panic(err)
	}
	b.Patch(id, false)
	return b
}

func onePartition(partition int32, batch []byte) *ProduceRequest {
	return &ProduceRequest{Timeout: time.Second, Topics: []ProduceTopic{{
		Name:       "t",
		Partitions: []ProducePartition{{Index: partition, Batch: batch}},
	}}}
}

func mustProduce(t *testing.T, conn *Conn, partition int32, batch []byte) ProduceResult {
	t.Helper()
	results, err := conn.SendProduce(onePartition(partition, batch)).Produced()
	if err != nil {
		t.Fatal(err)
	}
	if results[0].Err != nil {
		t.Fatal(results[0].Err)
	}
	return results[0]
}

func tp(partition int32) TP { return TP{Topic: "t", Partition: partition, LeaderEpoch: -1} }

// silentListener accepts connections, reads nothing and says nothing.
func silentListener(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var conns []net.Conn
		for {
			conn, err := l.Accept()
			if err != nil {
				for _, c := range conns {
					c.Close()
				}
				return
			}
			conns = append(conns, conn)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

// deadAddress is one at which nobody listens.
func deadAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
		<-time.After(2 * time.Millisecond)
	}
}
