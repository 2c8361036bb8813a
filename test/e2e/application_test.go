package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Application is a consumer that works on records, then commits them. It can be moved between clusters.
type Application struct {
	topic  string
	cl     *kgo.Client
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex // guards the rest
	worked map[int32][]int64
	first  map[int32]int64 // where it began on the cluster that it is on
	failed error
}

func newApplication(topic string) *Application {
	return &Application{topic: topic, worked: map[int32][]int64{}}
}

// Start begins to work on a cluster; addrs are the addresses by which it is reached.
func (a *Application) Start(t testing.TB, addrs string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(addrs, ",")...), kgo.ConsumerGroup("application"), kgo.ConsumeTopics(a.topic),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(), kgo.DisableClientMetrics(), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(100*time.Millisecond), kgo.SessionTimeout(6*time.Second))
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	a.cl, a.cancel, a.done, a.first = cl, cancel, make(chan struct{}), map[int32]int64{}
	go a.run(ctx)
}

func (a *Application) run(ctx context.Context) {
	defer close(a.done)
	defer a.cl.AllowRebalance()
	for {
		fetches := a.cl.PollRecords(ctx, 200)
		if ctx.Err() != nil {
			return
		}
		a.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			a.worked[r.Partition] = append(a.worked[r.Partition], r.Offset)
			if _, known := a.first[r.Partition]; !known {
				a.first[r.Partition] = r.Offset
			}
		})
		a.mu.Unlock()
		commit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		err := a.cl.CommitRecords(commit, fetches.Records()...)
		cancel()
		if err != nil && ctx.Err() == nil {
			a.mu.Lock()
			a.failed = err
			a.mu.Unlock()
		}
		a.cl.AllowRebalance()
	}
}

// Stop ends the work between two commits, wherever the stream is.
func (a *Application) Stop(t testing.TB) {
	t.Helper()
	a.cancel()
	<-a.done
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second) // its cluster may be dead
	defer cancel()
	_ = a.cl.LeaveGroupContext(ctx)
	a.cl.Close()
}

// Worked is how many records were worked on.
func (a *Application) Worked() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, offsets := range a.worked {
		n += len(offsets)
	}
	return n
}

// await waits until so many more records are worked on.
func (a *Application) await(t testing.TB, more int) {
	t.Helper()
	enough := a.Worked() + more
	Eventually(t, soon, func() error {
		if n := a.Worked(); n < enough {
			return fmt.Errorf("the application has worked on %d records, want %d", n, enough)
		}
		return nil
	})
}

// complete demands that every record that a cluster holds was worked on; with once, no record twice.
func (a *Application) complete(c *Cluster, once bool) error {
	logs, err := c.Logs(context.Background(), a.topic)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed != nil {
		return a.failed
	}
	for p, log := range logs {
		offsets := slices.Sorted(slices.Values(a.worked[p]))
		distinct := slices.Compact(slices.Clone(offsets))
		if once && len(distinct) != len(offsets) {
			return fmt.Errorf("partition %d: %d records were worked on twice", p, len(offsets)-len(distinct))
		}
		for want := log.Start; want < log.End; want++ {
			if _, found := slices.BinarySearch(distinct, want); !found {
				return fmt.Errorf("partition %d: record %d of %d was not worked on", p, want, log.End)
			}
		}
	}
	return nil
}

// A planned switch-over, twice there and back: producers stop, the application stops where it is, the topic is drained
// and promoted, and both go on on the other cluster. Every record is worked on exactly once.
func TestApplicationMovesThereAndBackTwice(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 4)
	east := NewDaemon(t, p.Mirror("t"))
	back := Pair{p.D, p.S}.Mirror()
	back.Mirror = "west"
	west := NewDaemon(t, back)
	east.Start()
	east.Await("MIRRORING", soon, "t")
	west.Start()
	app := newApplication("t")
	app.Start(t, p.S.Bootstrap())
	load := StartLoad(t, p.S, 1000, 4, "t")
	// move takes the work from one cluster to the other and lets the mirror turn round.
	move := func(m, other *Daemon, mirror, next string, to Pair) {
		t.Helper()
		app.await(t, 500)
		load.Stop(t)
		app.Stop(t)
		m.Do("stop", "--mirror", mirror, "--topics", "t", "--drain")
		load = StartLoad(t, to.D, 1000, 4, "t")
		app.Start(t, to.D.Bootstrap())
		other.Do("start", "--mirror", next, "--topics", "t")
		other.Await("MIRRORING", soon, "t")
	}
	there, home := p, Pair{p.D, p.S}
	for range 2 {
		move(east, west, "east", "west", there)
		move(west, east, "west", "east", home)
	}
	app.await(t, 500)
	load.Stop(t)
	Eventually(t, soon, func() error { return app.complete(p.S, true) })
	app.Stop(t)
	AwaitLevel(t, p.S, p.D, soon, "t")
	Identical(t, p.S, p.D, "t")
}

// A disaster: the source is cut off in the middle of the stream. The application goes on at the destination where it had
// committed, and no record that got there is left out. The source comes back with records that nobody saw here; what
// differs is exported and copied anew, and the application goes home.
func TestApplicationSurvivesTheLossOfTheSource(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 4)
	s := p.Mirror("t")
	s.Source = p.S.Proxied()
	east := NewDaemon(t, s)
	east.Start()
	east.Await("MIRRORING", soon, "t")
	app := newApplication("t")
	app.Start(t, p.S.Proxied())
	load := StartLoad(t, p.S, 1000, 4, "t")
	app.await(t, 1500)
	p.S.Nodes[0].Proxy.Cut()
	app.Stop(t)
	east.Do("stop", "--mirror", "east", "--topics", "t")
	load.Stop(t) // the old source was written to all the time
	app.Start(t, p.D.Bootstrap())
	here := StartLoad(t, p.D, 1000, 4, "t")
	app.await(t, 500)
	here.Stop(t)
	Eventually(t, soon, func() error { return app.complete(p.D, false) })

	p.S.Nodes[0].Proxy.Heal()
	back := Pair{p.D, p.S}.Mirror("t")
	back.Mirror = "west"
	west := NewDaemon(t, back)
	west.Start()
	west.Await("FAILED", soon, "t")
	west.Do("recover", "--mirror", "west", "--topics", "t", "--reseed")
	AwaitLevel(t, p.D, p.S, soon, "t")
	Identical(t, p.D, p.S, "t")
	logs, err := p.D.Logs(context.Background(), "t")
	must(t, err)
	for partition, log := range logs {
		Eventually(t, soon, func() error { return p.D.wantCommitted("application", "t", partition, log.End) })
	}
	app.Stop(t)
	west.Do("stop", "--mirror", "west", "--topics", "t", "--drain")
	app.Start(t, p.S.Bootstrap())
	again := StartLoad(t, p.S, 1000, 4, "t")
	app.await(t, 500)
	again.Stop(t)
	Eventually(t, soon, func() error { return app.complete(p.S, false) })
	app.Stop(t)
	for partition, at := range app.first {
		if at != logs[partition].End {
			t.Errorf("partition %d was begun at %d, though %d was committed before the move", partition, at, logs[partition].End)
		}
	}
}
