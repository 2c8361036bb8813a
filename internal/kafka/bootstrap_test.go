package kafka

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

// Case B099: a dead and a silent server before a good one cost one wait, once for all clients of the cluster.
func TestBadBootstrapServersCostLittle(t *testing.T) {
	fake := startFake(t, kfake.SeedTopics(1, "t"))
	log := &lockedBuffer{}
	dead, silent := deadAddress(t), silentListener(t)
	c := openCluster(t, Config{
		Connection:     mirror.Connection{BootstrapServers: append([]string{dead, silent}, fake.ListenAddrs()...)},
		RequestTimeout: 10 * time.Second, DialTimeout: 500 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	ctx := testContext(t)
	began := time.Now()
	if _, err := c.ID(ctx); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took >= 10*time.Second {
		t.Errorf("the first client waited %v, not one dial but a whole request", took)
	}
	began = time.Now()
	for range 5 {
		client, err := kgo.NewClient(c.Opts()...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
		client.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took >= 5*500*time.Millisecond {
		t.Errorf("five later clients took %v: each waited for the silent server", took)
	}
	for _, bad := range []string{dead, silent} {
		if n := strings.Count(log.String(), "address="+bad); n != 1 {
			t.Errorf("%s is told %d times, want once:\n%s", bad, n, log)
		}
	}
}

func TestBootstrapOrder(t *testing.T) {
	b := newBootstrap([]string{"a:1", "b:1", "c:1"}, slog.New(slog.DiscardHandler))
	if len(b.names()) != 3 || !isBootstrapName(b.names()[2]) || isBootstrapName("a:1") {
		t.Errorf("names %v", b.names())
	}
	for _, step := range []struct {
		address string
		err     error
		want    []string
	}{
		{"b:1", nil, []string{"b:1", "a:1", "c:1"}},
		{"a:1", errors.New("dead"), []string{"b:1", "c:1", "a:1"}},
		{"b:1", errors.New("dead"), []string{"c:1", "a:1", "b:1"}},
		{"c:1", errors.New("dead"), []string{"a:1", "b:1", "c:1"}},
		{"a:1", errors.New("dead"), []string{"b:1", "c:1", "a:1"}},
		{"a:1", nil, []string{"a:1", "b:1", "c:1"}},
	} {
		b.tell(step.address, step.err)
		if got := b.order(); !slices.Equal(got, step.want) {
			t.Errorf("after %s %v: %v, want %v", step.address, step.err, got, step.want)
		}
	}
}

// Who asks for a broker gets that broker, though its address is a configured one.
func TestBrokersAreNotReplacedByBootstrapServers(t *testing.T) {
	fake := startFake(t, kfake.NumBrokers(3))
	c := openFake(t, fake)
	ctx := testContext(t)
	m, err := c.Metadata(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for id, b := range m.Brokers {
		conn, err := c.Dial(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.conn.RemoteAddr().String(); got != b.Address() {
			t.Errorf("broker %d at %s, dialled %s", id, b.Address(), got)
		}
		if conn.Broker() != b {
			t.Errorf("broker %+v", conn.Broker())
		}
		conn.Close()
		nc, err := c.dialClient(ctx, "tcp", b.Address())
		if err != nil || nc.RemoteAddr().String() != b.Address() {
			t.Fatalf("client: %v", err)
		}
		nc.Close()
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
