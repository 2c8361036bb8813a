package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Pair is a source and a destination.
type Pair struct{ S, D *Cluster }

// shared and guarded lend pairs of clusters that outlive the tests: see SharedPair and GuardedPair.
var shared, guarded pool

// pool lends pairs of clusters, each to one test at a time, and starts another when all are out.
type pool struct {
	mu   sync.Mutex // guards the rest
	free []Pair
	all  []Pair
	dirs []string
}

// take gives a pair that nobody else has.
func (l *pool) take(t *testing.T, start func(dir string) (*Cluster, error)) Pair {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.free); n > 0 {
		p := l.free[n-1]
		l.free = l.free[:n-1]
		return p
	}
	dir, err := os.MkdirTemp("", "mirrord-e2e-")
	must(t, err)
	l.dirs = append(l.dirs, dir)
	s, err := start(filepath.Join(dir, "s"))
	must(t, err)
	d, err := start(filepath.Join(dir, "d"))
	must(t, err)
	p := Pair{s, d}
	l.all = append(l.all, p)
	return p
}

func (l *pool) give(p Pair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, p)
}

// close ends all clusters that were started.
func (l *pool) close() {
	for _, p := range l.all {
		p.S.Close()
		p.D.Close()
	}
	for _, dir := range l.dirs {
		os.RemoveAll(dir)
	}
}

// TestMain ends the clusters that tests share.
func TestMain(m *testing.M) {
	code := m.Run()
	shared.close()
	guarded.close()
	os.Exit(code)
}

// SharedPair gives two single-node clusters that tests use one after another; topics, groups and broker settings are
// gone when the test ends. Tests that damage a cluster start their own.
func SharedPair(t *testing.T) Pair {
	t.Helper()
	p := shared.take(t, func(dir string) (*Cluster, error) { return NewCluster(dir, Options{}) })
	t.Cleanup(func() {
		for _, c := range []*Cluster{p.S, p.D} {
			for _, n := range c.Nodes {
				n.Proxy.Heal()
			}
			c.Reset(t)
		}
		shared.give(p)
	})
	return p
}

// Reset deletes all topics and groups, so that the next test begins with an empty cluster.
func (c *Cluster) Reset(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	listed, err := c.adm.ListTopicsWithInternal(ctx)
	must(t, err)
	var doomed []string
	for _, name := range listed.Names() {
		if name != "__consumer_offsets" && name != "__transaction_state" && name != "__share_group_state" {
			doomed = append(doomed, name)
		}
	}
	if len(doomed) > 0 {
		_, err = c.adm.DeleteTopics(ctx, doomed...)
		must(t, err)
	}
	groups, err := c.adm.ListGroups(ctx)
	must(t, err)
	if names := groups.Groups(); len(names) > 0 {
		c.evict(t, names)
		Eventually(t, 15*time.Second, func() error {
			gone, err := c.adm.DeleteGroups(ctx, names...)
			if err != nil || gone.Error() == nil || strings.Contains(gone.Error().Error(), "GROUP_ID_NOT_FOUND") {
				return err
			}
			return gone.Error()
		})
	}
	Eventually(t, 20*time.Second, func() error {
		left, err := c.adm.ListTopicsWithInternal(ctx)
		if err != nil {
			return err
		}
		for _, name := range doomed {
			if left.Has(name) {
				return fmt.Errorf("topic %s is still there", name)
			}
		}
		return nil
	})
}

// evict takes the members out of classic groups, whose sessions would last longer than the test's processes.
func (c *Cluster) evict(t testing.TB, groups []string) {
	t.Helper()
	described, err := c.adm.DescribeGroups(context.Background(), groups...)
	if err != nil {
		return // deleting the groups waits for the sessions then
	}
	for _, g := range described {
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group = g.Group
		for _, m := range g.Members {
			member := kmsg.NewLeaveGroupRequestMember()
			member.MemberID, member.InstanceID = m.MemberID, m.InstanceID
			req.Members = append(req.Members, member)
		}
		if len(req.Members) > 0 {
			_, _ = req.RequestWith(context.Background(), c.cl)
		}
	}
}

// Mirror are the settings of a daemon that mirrors topics from S to D.
func (p Pair) Mirror(topics ...string) Settings {
	return Settings{Source: p.S.Bootstrap(), Destination: p.D.Bootstrap(), Mirror: "east", Topics: topics}
}

// Proxied is Mirror with both clusters behind their proxies.
func (p Pair) Proxied(topics ...string) Settings {
	s := p.Mirror(topics...)
	s.Source, s.Destination, s.Direct = p.S.Proxied(), p.D.Proxied(), p.D.Bootstrap()
	return s
}

// Load writes to all partitions of topics until stopped, about rate records a second, and fails the test on an error.
type Load struct {
	stop chan struct{}
	done chan error
}

// StartLoad starts a load on a cluster.
func StartLoad(t testing.TB, c *Cluster, rate int, partitions int32, topics ...string) *Load {
	t.Helper()
	cl := c.Producer(t, kgo.MaxBufferedRecords(1<<16), kgo.ProducerLinger(2*time.Millisecond))
	l := &Load{make(chan struct{}), make(chan error, 1)}
	go func() {
		defer cl.Close()
		l.done <- l.run(cl, rate, partitions, topics)
	}()
	return l
}

func (l *Load) run(cl *kgo.Client, rate int, partitions int32, topics []string) error {
	failed := make(chan error, 1)
	promise := func(_ *kgo.Record, err error) {
		if err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-l.stop:
			if err := cl.Flush(context.Background()); err != nil {
				return err
			}
			select {
			case err := <-failed:
				return err
			default:
				return nil
			}
		case <-tick.C:
		}
		for range max(1, rate/100) {
			r := Numbered(topics[n%len(topics)], int32(n/len(topics))%partitions, n, 1)[0]
			cl.Produce(context.Background(), r, promise)
			n++
		}
	}
}

// Stop ends the load; everything it wrote is acknowledged.
func (l *Load) Stop(t testing.TB) {
	t.Helper()
	close(l.stop)
	must(t, <-l.done)
}
