package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	testShards  = 5
	testSession = 6 * time.Second // the least that kfake admits
)

// bench is a fake destination and the instances on it.
type bench struct {
	*testing.T
	fake *kfake.Cluster
	log  *logText
}

func newBench(t *testing.T) *bench {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DataDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return &bench{T: t, fake: fake, log: &logText{}}
}

// logText keeps a log to look into.
type logText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logText) count(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
lines:
	for line := range strings.Lines(l.buf.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		n++
	}
	return n
}

// instance is one daemon's part, its data path and effects simulated.
type instance struct {
	b     *bench
	name  string
	c     *Coordinator
	store *statestore.Store
	path  *dataPath
	reg   *prometheus.Registry
	ended chan error
	stop  func() // SIGTERM, waits

	mu      sync.Mutex
	broken  map[string]error // effect results by "effect topic"
	calls   map[string]int   // partitions by effect
	batches map[string]int
	lag     map[string]int64
	resolve func(items, exclude []string) ([]string, map[string]error, error)
	reseeds []string
	events  []mirror.Event
}

func (b *bench) open() *kafka.Cluster {
	c, err := kafka.Open(kafka.Config{Connection: mirror.Connection{BootstrapServers: b.fake.ListenAddrs()}, RequestTimeout: 2 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// start begins an instance. change may alter what it is made of.
func (b *bench) start(name string, change ...func(*Deps)) *instance {
	b.Helper()
	i := &instance{
		b: b, name: name, path: newDataPath(), reg: prometheus.NewRegistry(), ended: make(chan error, 1),
		broken: map[string]error{}, calls: map[string]int{}, batches: map[string]int{}, lag: map[string]int64{},
	}
	i.resolve = func(items, _ []string) ([]string, map[string]error, error) { return items, nil, nil }
	cluster := b.open()
	log := slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})).With("instance", name)
	d := Deps{
		Config:  Config{GroupID: "mirrord-test", SessionTimeout: testSession, Retry: mirror.Backoff{Initial: 20 * time.Millisecond, Max: 200 * time.Millisecond, MaxAttempts: 3}},
		Cluster: cluster, Name: name, HTTP: name + ":9464", DataPath: i.path,
		Align: i.align, Fence: i.effect("fence"), Promote: i.effect("promote"), Sweep: i.effect("sweep"),
		Resolve: func(_ context.Context, _ string, items, exclude []string) ([]string, map[string]error, error) {
			i.mu.Lock()
			f := i.resolve
			i.mu.Unlock()
			return f(items, exclude)
		},
		Lag:    i.lags,
		Reseed: i.reseed,
		Define: func(d mirror.Definition, s map[string]string) (mirror.Definition, error) {
			if s["bad"] != "" {
				return d, errors.New("unknown key bad")
			}
			if v := s["bootstrap.servers"]; v != "" {
				d.Source.BootstrapServers = []string{v}
			}
			return d, nil
		},
		Event: func(e mirror.Event) {
			i.mu.Lock()
			defer i.mu.Unlock()
			i.events = append(i.events, e)
		},
		Log: log, Registerer: i.reg,
	}
	for _, f := range change {
		f(&d)
	}
	i.store = statestore.Open(statestore.Config{NumPartitions: testShards, ReplicationFactor: 1, GroupID: d.Config.GroupID},
		statestore.Deps{Cluster: cluster, Instance: name, Log: log, Registerer: i.reg})
	d.Store = i.store
	i.c = New(d)
	i.run(cluster)
	return i
}

func (i *instance) run(cluster *kafka.Cluster) {
	storeCtx, endStore := context.WithCancel(context.Background())
	ctx, end := context.WithCancel(context.Background())
	storeEnded := make(chan struct{})
	go func() { defer close(storeEnded); i.store.Run(storeCtx) }()
	go func() { i.ended <- i.c.Run(ctx) }()
	var once sync.Once
	i.stop = func() {
		once.Do(func() {
			end()
			<-i.ended
			endStore()
			<-storeEnded
			cluster.Close()
		})
	}
	i.b.Cleanup(i.stop)
}

func (i *instance) effect(name string) Effect {
	return func(ctx context.Context, ts []mirror.Target) []error {
		i.mu.Lock()
		defer i.mu.Unlock()
		errs := make([]error, len(ts))
		i.batches[name]++
		for k, t := range ts {
			errs[k] = i.broken[name+" "+t.Topic]
			i.calls[name]++
		}
		return errs
	}
}

func (i *instance) align(ctx context.Context, ts []mirror.Target) ([]int64, []error) {
	return make([]int64, len(ts)), i.effect("align")(ctx, ts)
}

func (i *instance) breaks(what string, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.broken[what] = err
}

func (i *instance) called(name string) (partitions, batches int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.calls[name], i.batches[name]
}

func (i *instance) lags(_ context.Context, _ string, topics []string) (map[string]int64, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	out := map[string]int64{}
	for _, t := range topics {
		if lag, ok := i.lag[t]; ok {
			out[t] = lag
		}
	}
	return out, nil
}

func (i *instance) reseed(ctx context.Context, _, topic string, commit func(context.Context) error) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reseeds = append(i.reseeds, topic)
	return "/exports/" + topic, nil
}

// dataPath simulates the fetcher: what does not run is drained at once, what runs is level at offset 100.
type dataPath struct {
	mu      sync.Mutex
	targets []mirror.Target
	ends    map[string]int64 // destination offsets by topic; else 100
	wet     bool             // nothing drains
	unsure  bool             // what it holds may be fillers
	moved   int64
}

func newDataPath() *dataPath { return &dataPath{ends: map[string]int64{}} }

func (p *dataPath) Reconcile(targets []mirror.Target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = targets
	p.moved++
}

func (p *dataPath) Moved() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.moved
}

func (p *dataPath) Positions() (out []mirror.PositionReport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.targets {
		end, ok := p.ends[t.Topic]
		if !ok {
			end = 100
		}
		out = append(out, mirror.PositionReport{
			Partition: t.Partition, Topic: t.Topic, SourceOffset: end, DestinationOffset: end,
			SourceEpoch: mirror.Position{LeaderEpoch: 7, Offset: 0}, Drained: !t.Run && !p.wet, Unlocated: p.unsure, StateEpoch: t.StateEpoch,
		})
	}
	return out
}

func (p *dataPath) running() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.targets {
		if t.Run {
			n++
		}
	}
	return n
}

func (p *dataPath) target(topic string, index int32) (mirror.Target, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.targets {
		if t.Topic == topic && t.Index == index {
			return t, true
		}
	}
	return mirror.Target{}, false
}

// eventually polls until f gives no complaint.
func (b *bench) eventually(limit time.Duration, f func() string) {
	b.Helper()
	deadline := time.Now().Add(limit)
	for {
		why := f()
		if why == "" {
			return
		}
		if time.Now().After(deadline) {
			b.log.mu.Lock()
			lines := strings.Split(b.log.buf.String(), "\n")
			b.log.mu.Unlock()
			b.Log(strings.Join(lines[max(0, len(lines)-60):], "\n"))
			b.Fatalf("after %v: %s", limit, why)
		}
		time.Sleep(10 * time.Millisecond) // polling with a deadline
	}
}

// owns waits until the instance drives that many shards.
func (i *instance) owns(limit time.Duration, want func(n int) bool) {
	i.b.Helper()
	i.b.eventually(limit, func() string {
		n := 0
		for s := range int32(testShards) {
			if i.c.OwnsShard(s) {
				n++
			}
		}
		if !want(n) {
			return fmt.Sprintf("%s owns %d shards", i.name, n)
		}
		return ""
	})
}

func all(n int) bool { return n == testShards }

func topicID(name string) (id mirror.TopicID) {
	copy(id[:], name+"-0123456789abcdef")
	return id
}

// command submits a command and waits for its outcome.
func (i *instance) command(cmd mirror.Command) mirror.Outcome {
	i.b.Helper()
	id := i.submit(cmd)
	var out mirror.Outcome
	i.b.eventually(20*time.Second, func() (why string) {
		var ok bool
		if out, ok = i.store.View().Outcome(id); !ok {
			return fmt.Sprintf("%s has no outcome", cmd.Verb)
		}
		return ""
	})
	return out
}

func (i *instance) submit(cmd mirror.Command) [16]byte {
	i.b.Helper()
	cmd.ID, cmd.AtMillis = statestore.NewCommandID(), time.Now().UnixMilli()
	cluster := i.b.open()
	defer cluster.Close()
	if err := statestore.SubmitCommand(context.Background(), cluster, cmd); err != nil {
		i.b.Fatal(err)
	}
	return cmd.ID
}

// found plays the metadata manager: it decides the modes and finds a topic on both sides.
func (i *instance) found(mirrorName string, partitions int32, topics ...string) {
	i.b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	m, _ := i.store.View().Mirror(mirrorName)
	m.TransactionsMode, m.FillersMode, m.LearntClusterID = mirror.Committed, mirror.Markers, "source"
	records := []statestore.Record{m}
	for _, name := range topics {
		t, ok := i.store.View().Topic(mirrorName, name)
		if !ok {
			t = statestore.Topic{Mirror: mirrorName, Name: name, Wish: mirror.Mirroring}
		}
		t.SourceID, t.DestinationID, t.Partitions = topicID(name), topicID("dst"+name), partitions
		records = append(records, t)
	}
	if err := i.c.Put(ctx, mirrorName, records...); err != nil {
		i.b.Fatal(err)
	}
}

// ready plays the metadata manager: a topic that was started again has its settings and its guard.
func (i *instance) ready(mirrorName, topic string) {
	i.b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	t, _ := i.store.View().Topic(mirrorName, topic)
	if !t.Unready {
		i.b.Errorf("topic %s was not waited for: %+v", topic, t)
	}
	t.Unready = false
	if err := i.c.Put(ctx, mirrorName, t); err != nil {
		i.b.Fatal(err)
	}
}

func (i *instance) state(mirrorName, topic string, index int32) statestore.PartitionState {
	s, ok := i.store.View().Partition(mirror.Partition{Mirror: mirrorName, TopicID: topicID(topic), Index: index})
	if !ok {
		s.State = mirror.Unknown
	}
	return s
}

// reach waits until all partitions of topics are in a state.
func (i *instance) reach(mirrorName string, partitions int32, want mirror.State, topics ...string) {
	i.b.Helper()
	i.b.eventually(20*time.Second, func() string {
		for _, t := range topics {
			for p := range partitions {
				if s := i.state(mirrorName, t, p); s.State != want {
					return fmt.Sprintf("%s-%d is %s (%s), want %s", t, p, s.State, s.ErrorMessage, want)
				}
			}
		}
		return ""
	})
}

// mirrored makes a mirror with topics that are MIRRORING.
func (i *instance) mirrored(mirrorName string, partitions int32, topics ...string) {
	i.b.Helper()
	i.command(mirror.Command{Verb: mirror.VerbCreate, Mirror: mirrorName, Settings: map[string]string{"bootstrap.servers": "s:9092"}})
	if out := i.command(mirror.Command{Verb: mirror.VerbStart, Mirror: mirrorName, Topics: topics}); refusals(out) > 0 {
		i.b.Fatalf("start: %+v", out)
	}
	i.found(mirrorName, partitions, topics...)
	i.reach(mirrorName, partitions, mirror.Mirroring, topics...)
}

// kick has the group drop the instance's member, as when its session is over.
func (i *instance) kick() {
	i.b.Helper()
	cluster := i.b.open()
	defer cluster.Close()
	groups, err := cluster.Admin().DescribeGroups(context.Background(), "mirrord-test")
	if err != nil {
		i.b.Fatal(err)
	}
	for _, m := range groups["mirrord-test"].Members {
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group = "mirrord-test"
		member := kmsg.NewLeaveGroupRequestMember()
		member.MemberID = m.MemberID
		req.Members = append(req.Members, member)
		if _, err := req.RequestWith(context.Background(), cluster.Client()); err != nil {
			i.b.Fatal(err)
		}
	}
}

func refusedTopics(o mirror.Outcome) (names []string) {
	for _, t := range o.Topics {
		if t.Refused {
			names = append(names, t.Topic)
		}
	}
	slices.Sort(names)
	return names
}
