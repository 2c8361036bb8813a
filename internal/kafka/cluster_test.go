package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"

	"mirrord/internal/mirror"
)

func TestOpenTouchesNoNetwork(t *testing.T) {
	c := openCluster(t, Config{Connection: mirror.Connection{BootstrapServers: []string{silentListener(t)}}})
	if got := c.Bootstrap(); len(got) != 1 {
		t.Errorf("Bootstrap() = %v", got)
	}
}

func TestOpenRefusesBadConfigurations(t *testing.T) {
	for name, conn := range map[string]mirror.Connection{
		"no servers":        {},
		"unknown protocol":  {BootstrapServers: []string{"a:1"}, Security: mirror.Security{Protocol: "SSLv3"}},
		"unknown mechanism": {BootstrapServers: []string{"a:1"}, Security: mirror.Security{Protocol: "SASL_SSL", SASL: mirror.SASL{Mechanism: "GSSAPI"}}},
	} {
		if _, err := Open(Config{Connection: conn}); err == nil || mirror.KindOf(err) != mirror.Refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMetadataIsAskedNow(t *testing.T) {
	fake, c, m := fakeWithTopic(t, 3, kfake.NumBrokers(3))
	ctx := testContext(t)
	if len(m.Brokers) != 3 || len(m.Topics["t"].Partitions) != 3 || m.ClusterID == "" {
		t.Fatalf("metadata: %+v", m)
	}
	if id, err := c.ID(ctx); err != nil || id != m.ClusterID {
		t.Errorf("ID() = %q, %v", id, err)
	}
	for i := range 5 {
		to := int32((int(fake.LeaderFor("t", 0)) + 1 + i) % 3)
		if err := fake.MoveTopicPartition("t", 0, to); err != nil {
			t.Fatal(err)
		}
		m, err := c.Metadata(ctx, "t")
		if err != nil {
			t.Fatal(err)
		}
		if p, _ := m.Topics["t"].Partition(0); p.Leader != to {
			t.Fatalf("leader %d, want %d: the answer is a cached one", p.Leader, to)
		}
	}
}

func TestMetadataNeverCreatesTopics(t *testing.T) {
	_, c, _ := fakeWithTopic(t, 1, kfake.AllowAutoTopicCreation())
	ctx := testContext(t)
	for range 2 {
		m, err := c.Metadata(ctx, "t", "nowhere")
		if err != nil {
			t.Fatal(err)
		}
		if m.Topics["t"].Err != nil || !UnknownTopic(m.Topics["nowhere"].Err) {
			t.Fatalf("topics: %+v", m.Topics)
		}
	}
	all, err := c.Metadata(ctx)
	if err != nil || len(all.Topics) != 1 {
		t.Errorf("all topics: %v, %v", all.Topics, err)
	}
}

func TestMetadataOfManyTopics(t *testing.T) {
	_, c, _ := fakeWithTopic(t, 1)
	names := []string{"t"}
	for i := range 2*metadataChunk + 1 {
		names = append(names, fmt.Sprintf("missing-%d", i))
	}
	m, err := c.Metadata(testContext(t), names...)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Topics) != len(names) || m.Topics["t"].Err != nil {
		t.Errorf("%d topics of %d", len(m.Topics), len(names))
	}
}

func TestUnreachableClusterSaysSo(t *testing.T) {
	c := openCluster(t, Config{Connection: mirror.Connection{BootstrapServers: []string{deadAddress(t)}}})
	ctx, cancel := context.WithTimeout(testContext(t), 2*time.Second)
	defer cancel()
	_, err := c.ID(ctx)
	if mirror.KindOf(err) != mirror.Unreachable || Classify(err) != mirror.Unreachable {
		t.Errorf("kind %v of %v", mirror.KindOf(err), err)
	}
	if _, err := c.Dial(ctx, 7); mirror.KindOf(err) != mirror.Unreachable {
		t.Errorf("dial: kind %v of %v", mirror.KindOf(err), err)
	}
}

func TestDialUnknownBroker(t *testing.T) {
	_, c, _ := fakeWithTopic(t, 1)
	if _, err := c.Dial(testContext(t), 99); mirror.KindOf(err) != mirror.Unreachable {
		t.Errorf("err %v", err)
	}
}

func TestClientMetricsLiveAsLongAsTheClient(t *testing.T) {
	fake, reg := startFake(t), prometheus.NewRegistry()
	open := func() *Cluster {
		c, err := Open(Config{Connection: mirror.Connection{BootstrapServers: fake.ListenAddrs()}, Registerer: reg})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a := open()
	b := open() // a second one with the same labels must not end the process
	b.Close()
	a.Close()
	open().Close()
	families, err := reg.Gather()
	if err != nil || len(families) > 0 {
		t.Errorf("left behind: %d families, %v", len(families), err)
	}
}

func TestClosedCluster(t *testing.T) {
	fake := startFake(t, kfake.SeedTopics(1, "t"))
	c, err := Open(Config{Connection: mirror.Connection{BootstrapServers: fake.ListenAddrs()}})
	if err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	if r := c.LogEnds(ctx, []TP{tp(0)})[tp(0)]; r.Err != nil {
		t.Fatal(r.Err)
	}
	c.Close()
	if r := c.LogEnds(ctx, []TP{tp(0)})[tp(0)]; r.Err == nil {
		t.Error("a closed cluster answers")
	}
}

func TestRequestErrorKeepsCauses(t *testing.T) {
	cause := errors.New("lease lost")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	err := requestError(ctx, "ask", context.Canceled)
	if !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
		t.Errorf("causes lost: %v", err)
	}
	if requestError(ctx, "ask", nil) != nil {
		t.Error("an error out of none")
	}
	kinds := []mirror.Kind{mirror.KindOf(requestError(ctx, "ask", mirror.Errorf(mirror.Fenced, "x")))}
	if !slices.Equal(kinds, []mirror.Kind{mirror.Fenced}) {
		t.Errorf("kinds %v", kinds)
	}
}
