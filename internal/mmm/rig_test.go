package mmm

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a state topic in memory. It plays the partitions' owners too: partitions of a topic that is mirrored are
// MIRRORING, those of a stopped one STOPPED.
type memory struct {
	mu       sync.Mutex
	changed  chan struct{}
	mirrors  map[string]statestore.Mirror
	topics   map[[2]string]statestore.Topic
	states   map[mirror.Partition]statestore.PartitionState
	acls     map[string]statestore.OwnedACL
	groups   map[string]statestore.GroupStatus
	settings map[string]statestore.TopicSettings
	refresh  statestore.RefreshStatus
	compared map[string]mirror.State // what comparing a topic comes to where that is not MIRRORING
	puts     int
}

func newMemory() *memory {
	return &memory{
		changed: make(chan struct{}), mirrors: map[string]statestore.Mirror{}, topics: map[[2]string]statestore.Topic{},
		states: map[mirror.Partition]statestore.PartitionState{}, acls: map[string]statestore.OwnedACL{},
		groups: map[string]statestore.GroupStatus{}, settings: map[string]statestore.TopicSettings{},
	}
}

func (m *memory) put(_ context.Context, _ string, recs ...statestore.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range recs {
		m.puts++
		switch r := r.(type) {
		case statestore.Mirror:
			m.mirrors[r.Name] = r
		case statestore.Topic:
			m.topics[[2]string{r.Mirror, r.Name}] = r
			m.drive(r)
		case statestore.Rewish:
			m.topics[[2]string{r.Mirror, r.Name}] = r.Topic
			m.drive(r.Topic)
		case statestore.OwnedACL:
			m.acls[r.Binding] = r
		case statestore.GroupStatus:
			m.groups[r.Group] = r
		case statestore.TopicSettings:
			m.settings[r.Topic] = r
		case statestore.RefreshStatus:
			m.refresh = r
		case statestore.Tombstone:
			switch of := r.Of.(type) {
			case statestore.OwnedACL:
				delete(m.acls, of.Binding)
			case statestore.GroupStatus:
				delete(m.groups, of.Group)
			case statestore.RefreshStatus:
				m.refresh = statestore.RefreshStatus{}
			}
		}
	}
	close(m.changed)
	m.changed = make(chan struct{})
	return nil
}

func (m *memory) drive(t statestore.Topic) {
	state := map[mirror.State]mirror.State{mirror.Mirroring: mirror.Mirroring, mirror.Paused: mirror.Paused, mirror.Stopped: mirror.Stopped}[t.Wish]
	if t.Finding.Message != "" && t.Wish != mirror.Stopped {
		state = mirror.Failed
	}
	for i := range t.Partitions {
		p := mirror.Partition{Mirror: t.Mirror, TopicID: t.SourceID, Index: i}
		if outcome, ok := m.compared[t.Name]; ok && t.Wish == mirror.Mirroring && t.Finding.Message == "" {
			m.compare(t, p, outcome)
			continue
		}
		m.states[p] = statestore.PartitionState{Partition: p, Topic: t.Name, State: state, Kind: t.Finding.Kind, ErrorMessage: t.Finding.Message, Rearmed: t.Rearm}
	}
}

// compare plays the comparison of a partition that ends in LOG_TRUNCATION, still, or in FAILED.
func (m *memory) compare(t statestore.Topic, p mirror.Partition, outcome mirror.State) {
	before := m.states[p]
	switch {
	case before.State == mirror.Failed && before.Rearmed == t.Rearm:
	case t.Unready || outcome != mirror.Failed:
		m.states[p] = statestore.PartitionState{Partition: p, Topic: t.Name, State: mirror.LogTruncation, Rearmed: t.Rearm}
	default:
		m.states[p] = statestore.PartitionState{
			Partition: p, Topic: t.Name, State: mirror.Failed, Previous: mirror.LogTruncation, Kind: mirror.Diverged, RetryAttempt: -1, Rearmed: t.Rearm,
		}
	}
}

func (m *memory) Mirrors() []statestore.Mirror {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.mirrors), func(a, b statestore.Mirror) int { return strings.Compare(a.Name, b.Name) })
}

func (m *memory) Mirror(name string) (statestore.Mirror, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.mirrors[name]
	return r, ok
}

func (m *memory) Topics(name string) (all []statestore.Topic) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.topics {
		if t.Mirror == name {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, byName)
	return all
}

func (m *memory) Topic(name, topic string) (statestore.Topic, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.topics[[2]string{name, topic}]
	return t, ok
}

func (m *memory) Seen(topic string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for at := range m.topics {
		if at[1] == topic {
			return true
		}
	}
	return false
}

func (m *memory) Partitions(name string) (all []statestore.PartitionState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.states {
		if p.Mirror == name {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b statestore.PartitionState) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Index, b.Index))
	})
	return all
}

func (m *memory) Partition(p mirror.Partition) (statestore.PartitionState, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.states[p]
	return s, ok
}

func (m *memory) LastMirror(p mirror.Partition) (mirror.Position, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.compared[m.states[p].Topic]; ok {
		return mirror.NoPosition, true
	}
	return mirror.Position{LeaderEpoch: 1, Offset: 1000}, true
}

func (m *memory) Report(mirror.Partition) (statestore.ReportedPosition, string, bool) {
	return statestore.ReportedPosition{}, "", false
}

func (m *memory) ACLs(string) []statestore.OwnedACL {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.acls), func(a, b statestore.OwnedACL) int { return strings.Compare(a.Binding, b.Binding) })
}

func (m *memory) Groups(string) []statestore.GroupStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.SortedFunc(maps.Values(m.groups), func(a, b statestore.GroupStatus) int { return strings.Compare(a.Group, b.Group) })
}

func (m *memory) Settings(_, topic string) (statestore.TopicSettings, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.settings[topic]
	return s, ok
}

func (m *memory) RefreshStatus(string) statestore.RefreshStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refresh
}

func (m *memory) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *memory) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.puts
}

// logs collects what was logged.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// lines counts the lines that hold all the words.
func (l *logs) lines(words ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		has := func(w string) bool { return strings.Contains(line, w) }
		if !slices.ContainsFunc(words, func(w string) bool { return !has(w) }) {
			n++
		}
	}
	return n
}

// rig is two fake clusters and a manager between them, for a mirror named m.
type rig struct {
	t        *testing.T
	fs, fd   *kfake.Cluster
	src, dst *kafka.Cluster
	source   atomic.Pointer[kafka.Cluster] // what answers at the source's address
	s, d     *kadm.Client
	state    *memory
	log      *logs
	deps     Deps
	cfg      Config
	manager  *Manager
	registry *prometheus.Registry
}

type rigOptions struct {
	source, destination []kfake.Opt
	security            mirror.Security
	define              func(*mirror.Definition)
}

func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	r := &rig{t: t, state: newMemory(), log: &logs{}, registry: prometheus.NewRegistry()}
	r.fs, r.src = fakeCluster(t, o.security, append([]kfake.Opt{kfake.NumBrokers(1), kfake.ClusterID("S")}, o.source...)...)
	r.fd, r.dst = fakeCluster(t, o.security, append([]kfake.Opt{kfake.NumBrokers(1), kfake.ClusterID("D"), kfake.SeedTopics(1, statestore.StateTopic, statestore.CommandsTopic)}, o.destination...)...)
	r.s, r.d = r.src.Admin(), r.dst.Admin()
	r.source.Store(r.src)
	def := mirror.DefaultDefinition("m")
	def.Source = r.src.Connection()
	if o.define != nil {
		o.define(&def)
	}
	if err := r.state.put(t.Context(), "m", statestore.Mirror{Definition: def}); err != nil {
		t.Fatal(err)
	}
	r.cfg = Config{RefreshInterval: 200 * time.Millisecond, GroupSyncInterval: 200 * time.Millisecond, CallTimeout: 10 * time.Second, DataDir: t.TempDir()}
	r.deps = Deps{
		Destination: r.dst, View: r.state, Put: r.state.put, Lease: func() error { return nil },
		Source:  func(mirror.Definition) (*kafka.Cluster, error) { return r.source.Load(), nil },
		Owned:   func() []string { return []string{"m"} },
		Changed: func() <-chan struct{} { return nil },
		Tail: func(_ context.Context, _ string, t statestore.Topic, partition int32, w io.Writer) (int64, error) {
			n, err := io.WriteString(w, t.Name+"\n")
			return int64(n), err
		},
		Log: slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelInfo})), Registerer: r.registry,
	}
	return r
}

func fakeCluster(t *testing.T, security mirror.Security, opts ...kfake.Opt) (*kfake.Cluster, *kafka.Cluster) {
	t.Helper()
	f, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	c, err := kafka.Open(kafka.Config{Connection: mirror.Connection{BootstrapServers: f.ListenAddrs(), Security: security}, RequestTimeout: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return f, c
}

// run starts the manager; it ends with the test, or with the function returned.
func (r *rig) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	r.manager = NewManager(r.cfg, r.deps)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.manager.Run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	r.t.Cleanup(stop)
	return stop
}

// topic creates a topic at the source with n records in each partition. Settings come in pairs.
func (r *rig) topic(name string, partitions int32, n int, settings ...string) {
	r.t.Helper()
	configs := map[string]string{}
	for i := 0; i+1 < len(settings); i += 2 {
		configs[settings[i]] = settings[i+1]
	}
	if err := r.fs.CreateTopic(name, partitions, configs); err != nil {
		r.t.Fatal(err)
	}
	r.write(r.fs, name, partitions, n)
}

func (r *rig) write(f *kfake.Cluster, name string, partitions int32, n int) {
	r.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(f.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		r.t.Fatal(err)
	}
	defer client.Close()
	var records []*kgo.Record
	for p := range partitions {
		for range n {
			records = append(records, &kgo.Record{Topic: name, Partition: p, Value: []byte("v")})
		}
	}
	if err := client.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
}

// trim moves a log start of topic t up.
func (r *rig) trim(c *kadm.Client, partition int32, to int64) {
	r.t.Helper()
	o := kadm.Offsets{}
	o.Add(kadm.Offset{Topic: "t", Partition: partition, At: to})
	if deleted, err := c.DeleteRecords(r.t.Context(), o); err != nil || deleted.Error() != nil {
		r.t.Fatal(err, deleted.Error())
	}
}

// eventually waits until f holds.
func (r *rig) eventually(what string, f func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(15 * time.Second); ; {
		if f() {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: not within time; log:\n%s", what, r.log.text.String())
		}
		<-time.After(20 * time.Millisecond)
	}
}

// status is what the mirror's last cycles found; zero: it has no loop yet.
func (r *rig) status() Status {
	if all := r.manager.Statuses(); len(all) > 0 {
		return all[0]
	}
	return Status{}
}

// cycles waits until n more full refreshes have ended.
func (r *rig) cycles(n int) {
	r.t.Helper()
	for range n {
		before := r.status().RefreshedAt
		r.eventually("a refresh", func() bool { return r.status().RefreshedAt.After(before) })
	}
}

func (r *rig) record(topic string) statestore.Topic {
	t, _ := r.state.Topic("m", topic)
	return t
}

// wish is what a command does to a topic.
func (r *rig) wish(topic string, change func(*statestore.Topic)) {
	r.t.Helper()
	t, ok := r.state.Topic("m", topic)
	if !ok {
		t = statestore.Topic{Mirror: "m", Name: topic}
	}
	change(&t)
	if err := r.state.put(r.t.Context(), "m", t); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) alter(change func(*statestore.Mirror)) {
	r.t.Helper()
	m, _ := r.state.Mirror("m")
	m.Version++
	change(&m)
	if err := r.state.put(r.t.Context(), "m", m); err != nil {
		r.t.Fatal(err)
	}
}

func start(t *statestore.Topic) { t.Wish, t.ByCommand = mirror.Mirroring, true }
func stop(t *statestore.Topic)  { t.Wish, t.ByCommand = mirror.Stopped, true }

// setting is an explicit setting of a destination topic.
func (r *rig) setting(topic, key string) string {
	return r.dst.TopicConfigs(r.t.Context(), topic)[topic].Explicit()[key]
}

func (r *rig) commit(c *kadm.Client, group, topic string, partition int32, offset int64) {
	r.t.Helper()
	o := kadm.Offsets{}
	o.Add(kadm.Offset{Topic: topic, Partition: partition, At: offset, LeaderEpoch: 3, Metadata: "text"})
	if err := c.CommitAllOffsets(r.t.Context(), group, o); err != nil {
		r.t.Fatal(err)
	}
}

// committed is a group's offset; −1: none.
func (r *rig) committed(c *kadm.Client, group, topic string, partition int32) int64 {
	all, err := c.FetchOffsets(r.t.Context(), group)
	if err != nil {
		return -1
	}
	if o, ok := all.Lookup(topic, partition); ok {
		return o.At
	}
	return -1
}
