package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Options describe a cluster. The zero value is one node of the newest release.
type Options struct {
	Nodes   int               // 0: 1
	Version string            // Kafka release; empty: defaultVersion
	Props   map[string]string // further broker properties
	Heap    string            // -Xmx of a node; empty: 512m
	Server  bool              // the JVM as brokers run it (all compilers, G1), not tuned for a quick start
	// ZooKeeper keeps the cluster's metadata, as always before Kafka 3.
	ZooKeeper bool
}

const defaultVersion = "4.3.1"

// backend runs the nodes of a cluster: JVM processes from Maven jars, or containers.
type backend interface {
	start(ctx context.Context, nodes []*Node, o Options) error
	kill(i int) error   // at once
	stop(i int) error   // in order
	launch(i int) error // a dead node again, with its data
	freeze(i int) error
	thaw(i int) error
	logTail(i int) string
	close()
}

// Node is one broker with a direct address and one behind a proxy.
type Node struct {
	ID              int
	Addr, viaProxy  string
	upstream        string // where the proxied listener really is
	internal, voter string // inter-broker and controller listeners
	Proxy           *Proxy
}

// Cluster is a running Kafka cluster.
type Cluster struct {
	Options
	ID    string
	Nodes []*Node
	dir   string
	b     backend
	cl    *kgo.Client
	adm   *kadm.Client
}

// StartCluster starts a cluster and waits until it answers. It ends with the test.
func StartCluster(t testing.TB, o Options) *Cluster {
	t.Helper()
	c, err := NewCluster(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// NewCluster starts a cluster with its data below dir; the caller closes it.
func NewCluster(dir string, o Options) (*Cluster, error) {
	o.Nodes, o.Version = max(1, o.Nodes), cmpOr(o.Version, defaultVersion)
	o.ZooKeeper = o.ZooKeeper || strings.HasPrefix(o.Version, "2.")
	c := &Cluster{Options: o, dir: dir, b: newBackend(dir, o.Version)}
	for i := range o.Nodes {
		n := &Node{ID: i + 1, Addr: freeAddr(), upstream: freeAddr(), internal: freeAddr(), voter: freeAddr()}
		p, err := newProxy("127.0.0.1:0", n.upstream)
		if err != nil {
			return nil, err
		}
		n.Proxy, n.viaProxy = p, p.Addr()
		c.Nodes = append(c.Nodes, n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := c.b.start(ctx, c.Nodes, o); err != nil {
		c.Close()
		return nil, err
	}
	var err error
	c.cl, err = kgo.NewClient(kgo.SeedBrokers(c.addrs()...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100*time.Millisecond), kgo.MaxVersions(namedVersions()))
	if err != nil {
		c.Close()
		return nil, err
	}
	c.adm = kadm.NewClient(c.cl)
	if err := c.awaitUp(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func cmpOr(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// newBackend picks containers when MIRRORD_E2E_BACKEND=docker, else JVM processes, as for old releases, which have no image
// of that kind.
func newBackend(dir, version string) backend {
	if os.Getenv("MIRRORD_E2E_BACKEND") == "docker" && version == defaultVersion {
		return &docker{}
	}
	return &jvm{dir: dir}
}

func (c *Cluster) addrs() (out []string) {
	for _, n := range c.Nodes {
		out = append(out, n.Addr)
	}
	return out
}

// Bootstrap is the direct address list.
func (c *Cluster) Bootstrap() string { return strings.Join(c.addrs(), ",") }

// Proxied is the address list behind the proxies.
func (c *Cluster) Proxied() string {
	var out []string
	for _, n := range c.Nodes {
		out = append(out, n.viaProxy)
	}
	return strings.Join(out, ",")
}

// Client is the tests' own client, on the direct listeners.
func (c *Cluster) Client() *kgo.Client { return c.cl }

// Admin is the tests' own admin client.
func (c *Cluster) Admin() *kadm.Client { return c.adm }

// Kill ends node i (from 1) with SIGKILL.
func (c *Cluster) Kill(t testing.TB, i int) { must(t, c.b.kill(i-1)) }

// Stop ends node i in order.
func (c *Cluster) Stop(t testing.TB, i int) { must(t, c.b.stop(i-1)) }

// Launch starts a dead node i again without waiting.
func (c *Cluster) Launch(t testing.TB, i int) { must(t, c.b.launch(i-1)) }

// Freeze stops node i in the middle of whatever it does; its connections stay open.
func (c *Cluster) Freeze(t testing.TB, i int) { must(t, c.b.freeze(i-1)) }

// Thaw lets a frozen node go on.
func (c *Cluster) Thaw(t testing.TB, i int) { must(t, c.b.thaw(i-1)) }

// Pid is the process id of node i; 0 where nodes are no processes of this machine.
func (c *Cluster) Pid(i int) int {
	if j, ok := c.b.(*jvm); ok {
		return j.procs[i-1].cmd.Process.Pid
	}
	return 0
}

// AwaitUp waits until all nodes are back and answer.
func (c *Cluster) AwaitUp(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	must(t, c.awaitUp(ctx))
}

// Close ends all nodes. It may be called twice.
func (c *Cluster) Close() {
	if c.cl != nil {
		c.cl.Close()
	}
	for _, n := range c.Nodes {
		n.Proxy.close()
	}
	c.b.close()
}

func (c *Cluster) awaitUp(ctx context.Context) error {
	for {
		err := c.answers(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("cluster is not up: %w\n%s", err, c.b.logTail(0))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// answers demands that every node knows all nodes and says the same cluster id. Metadata is asked by hand, since
// clients answer from their caches.
func (c *Cluster) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	errs := make([]error, len(c.Nodes))
	var wg sync.WaitGroup
	for i, n := range c.Nodes {
		wg.Go(func() { errs[i] = c.nodeAnswers(ctx, n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *Cluster) nodeAnswers(ctx context.Context, n *Node) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, cl.SeedBrokers()[0])
	if err != nil {
		return err
	}
	if len(resp.Brokers) != len(c.Nodes) || resp.ControllerID < 0 {
		return fmt.Errorf("node %d knows %d of %d brokers", n.ID, len(resp.Brokers), len(c.Nodes))
	}
	if resp.ClusterID != nil {
		c.ID = *resp.ClusterID
	}
	return nil
}

var ports struct {
	sync.Mutex
	taken map[int]bool
}

// freeAddr is a loopback address below the range of outgoing ports, so that it stays free while its broker is down.
func freeAddr() string {
	ports.Lock()
	defer ports.Unlock()
	if ports.taken == nil {
		ports.taken = map[int]bool{}
	}
	for {
		port := 12000 + rand.IntN(18000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if ports.taken[port] || err != nil {
			if err == nil {
				l.Close()
			}
			continue
		}
		l.Close()
		ports.taken[port] = true
		return fmt.Sprintf("127.0.0.1:%d", port)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tail is the last n bytes of a log, without what was written for debugging.
func tail(file string, n int) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := slices.DeleteFunc(strings.SplitAfter(string(b), "\n"), func(line string) bool { return strings.Contains(line, "level=DEBUG") })
	told := strings.Join(lines, "")
	return filepath.Base(file) + ":\n" + told[max(0, len(told)-n):]
}
