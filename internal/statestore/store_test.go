package statestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const group = "mirrord-test"

// bench is a fake destination and what a test does with it.
type bench struct {
	*testing.T
	fake    *kfake.Cluster
	addrs   []string
	cluster *kafka.Cluster
	log     *logText
	ctx     context.Context
}

func newBench(t *testing.T) *bench {
	t.Helper()
	fake, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.DataDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	b := &bench{T: t, fake: fake, addrs: fake.ListenAddrs(), log: &logText{}}
	b.cluster = b.open()
	var cancel context.CancelFunc
	b.ctx, cancel = context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return b
}

func (b *bench) open() *kafka.Cluster {
	c, err := kafka.Open(kafka.Config{Connection: mirror.Connection{BootstrapServers: b.addrs}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	return c
}

func (b *bench) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b.log, nil)) }

type logText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logText) has(words ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			return true
		}
	}
	return false
}

func config(shards int32) Config {
	return Config{NumPartitions: shards, ReplicationFactor: 1, GroupID: group}
}

// store runs an instance's Store.
func (b *bench) store(name string, shards int32) *Store {
	s := Open(config(shards), Deps{Cluster: b.open(), Instance: name, Log: b.logger()})
	s.patience = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			b.Errorf("store ended with %v", err)
		}
	})
	b.eventually("shards known", func() bool { return s.View().Shards() > 0 })
	return s
}

// join makes a member of the group, whose standing the stores are told.
func (b *bench) join(stores ...*Store) *kgo.Client {
	cl, err := kgo.NewClient(append(b.cluster.Opts(), kgo.ConsumerGroup(group), kgo.ConsumeTopics(StateTopic),
		kgo.HeartbeatInterval(100*time.Millisecond), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, m map[string][]int32) {
			id, generation := cl.GroupMetadata()
			for _, s := range stores {
				s.SetMember(id, generation, nil)
			}
		}))...)
	if err != nil {
		b.Fatal(err)
	}
	cl.PauseFetchTopics(StateTopic)
	b.Cleanup(cl.CloseAllowingRebalance)
	b.eventually("member of the group", func() bool {
		m, _ := stores[0].standing()
		return m.id != ""
	})
	return cl
}

func (b *bench) eventually(what string, ok func() bool) {
	b.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			b.Fatalf("not in time: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// claim takes over every shard.
func (b *bench) claim(s *Store) {
	b.Helper()
	for n := range s.View().Shards() {
		b.must(s.WaitLoaded(b.ctx, n))
		old, _ := s.View().Claim(n)
		b.must(s.Append(b.ctx, n, ShardClaim{ShardIndex: n, Number: old.Number + 1, TransactionalID: s.TransactionalID()}))
	}
}

func partition(index int32) mirror.Partition {
	return mirror.Partition{Mirror: "east", TopicID: testID, Index: index}
}

func state(index int32, s mirror.State) PartitionState {
	return PartitionState{Partition: partition(index), Topic: "orders", State: s, Previous: mirror.NotRecorded, LeaderEpoch: -1}
}

func TestAppendIsSeenWhenItReturns(t *testing.T) {
	b := newBench(t)
	s := b.store("one", 4)
	b.join(s)
	b.claim(s)
	if !s.View().Fresh() {
		t.Error("the state topic was empty, the view says it was not")
	}
	for i := range int32(20) {
		r := state(i, mirror.Mirroring)
		b.must(s.Append(b.ctx, r.Shard(4), r))
		if got, ok := s.View().Partition(r.Partition); !ok || got != r {
			t.Fatalf("partition %d: view shows %+v", i, got)
		}
	}
	gone := Tombstone{state(3, 0)}
	b.must(s.Append(b.ctx, gone.Shard(4), gone))
	if got, ok := s.View().Partition(partition(3)); ok {
		t.Errorf("deleted partition is shown: %+v", got)
	}
	loaded, err := Load(b.ctx, b.cluster)
	b.must(err)
	if got, want := fmt.Sprint(loaded.Partitions("east")), fmt.Sprint(s.View().Partitions("east")); got != want {
		t.Errorf("loaded %s, want %s", got, want)
	}
	if loaded.Fresh() || !loaded.Loaded(3) {
		t.Error("a loaded view must be loaded and not fresh")
	}
}

func TestConcurrentAppendsShareTransactions(t *testing.T) {
	b := newBench(t)
	s := b.store("one", 4)
	b.join(s)
	b.claim(s)
	var wg sync.WaitGroup
	for i := range int32(200) {
		wg.Go(func() {
			r := state(i, mirror.Paused)
			if err := s.Append(b.ctx, r.Shard(4), r); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := len(s.View().Partitions("east")); got != 200 {
		t.Errorf("view shows %d partitions, want 200", got)
	}
}

// TestR15_FormerOwnerCannotWrite: a member of a past generation is refused by the broker and nothing of it is seen.
func TestR15_FormerOwnerCannotWrite(t *testing.T) {
	b := newBench(t)
	s := b.store("one", 2)
	b.join(s)
	b.claim(s)
	m, _ := s.standing()
	r := state(0, mirror.Mirroring)
	for name, set := range map[string]func(){
		"unknown member":  func() { s.SetMember("stranger", m.generation, nil) },
		"past generation": func() { s.SetMember(m.id, m.generation-1, nil) },
	} {
		set()
		if err := s.Append(b.ctx, r.Shard(2), r); mirror.KindOf(err) != mirror.Fenced {
			t.Errorf("%s: %v", name, err)
		}
		if got, ok := s.View().Partition(r.Partition); ok {
			t.Errorf("%s: view shows %+v", name, got)
		}
	}
	s.SetMember(m.id, m.generation, nil)
	b.must(s.Append(b.ctx, r.Shard(2), r))
}

func TestOnlyClaimedShardsAreWritten(t *testing.T) {
	b := newBench(t)
	s := b.store("one", 2)
	r := state(0, mirror.Mirroring)
	n := r.Shard(2)
	if err := s.Append(b.ctx, n, r); mirror.KindOf(err) != mirror.Fenced {
		t.Errorf("not a member: %v", err)
	}
	b.join(s)
	if err := s.Append(b.ctx, n, r); mirror.KindOf(err) != mirror.Fenced {
		t.Errorf("not claimed: %v", err)
	}
	b.must(s.Append(b.ctx, n, ShardClaim{ShardIndex: n, Number: 1}, r))
	b.must(s.Append(b.ctx, n, ShardClaim{ShardIndex: n, Number: 1, Released: true}))
	if err := s.Append(b.ctx, n, r); mirror.KindOf(err) != mirror.Fenced {
		t.Errorf("released: %v", err)
	}
	b.must(s.Append(b.ctx, n, ShardClaim{ShardIndex: n, Number: 2}))
	s.Disown(n)
	if err := s.Append(b.ctx, n, r); mirror.KindOf(err) != mirror.Fenced {
		t.Errorf("disowned: %v", err)
	}
	if err := s.Append(b.ctx, 1-n, r); err == nil {
		t.Error("a record was accepted for a shard that it does not belong to")
	}
}

// TestFencedWriterBeginsAnew: a successor of one shard ends the writer's open transaction, by its transactional id; the
// writer goes on with the shards that it still owns.
func TestFencedWriterBeginsAnew(t *testing.T) {
	b := newBench(t)
	s := b.store("one", 2)
	b.join(s)
	b.claim(s)
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = kmsg.StringPtr(s.TransactionalID()), 10_000
	_, err := req.RequestWith(b.ctx, b.cluster.Client())
	b.must(err)
	r := state(0, mirror.Mirroring)
	b.must(s.Append(b.ctx, r.Shard(2), r))
}

// TestLoaderEndsAbandonedTransaction: what a dead owner left open does not hold up its successor.
func TestLoaderEndsAbandonedTransaction(t *testing.T) {
	b := newBench(t)
	first := b.store("one", 1)
	b.join(first)
	b.claim(first)
	dead, err := openTransactor(b.cluster, first.TransactionalID(), group)
	b.must(err)
	defer dead.close()
	b.must(dead.client.BeginTransaction())
	r := state(0, mirror.Mirroring)
	_, err = dead.produce(b.ctx, []*kgo.Record{{Topic: StateTopic, Partition: 0, Key: r.key(), Value: r.value()}})
	b.must(err)
	second := b.store("two", 1)
	began := time.Now()
	b.must(second.WaitLoaded(b.ctx, 0))
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("loading took %v", took)
	}
	if got, ok := second.View().Partition(r.Partition); ok {
		t.Errorf("an undecided record is shown: %+v", got)
	}
}

func TestUnreadableRecordStopsItsShardOnly(t *testing.T) {
	b := newBench(t)
	s := b.store("one", 2)
	b.join(s)
	b.claim(s)
	raw, err := kgo.NewClient(append(b.cluster.Opts(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	b.must(err)
	defer raw.Close()
	bad := state(0, mirror.Mirroring)
	n := bad.Shard(2)
	_, before := s.View().position(n)
	b.must(raw.ProduceSync(b.ctx,
		&kgo.Record{Topic: StateTopic, Partition: n, Key: []byte{7, 7}, Value: []byte("of the future")},
		&kgo.Record{Topic: StateTopic, Partition: n, Key: bad.key(), Value: []byte{9, 9}}).FirstErr())
	b.eventually("shard stopped", func() bool { _, ok := s.View().BadRecord(n); return ok })
	if !b.log.has("level=ERROR", "cannot be read", "offset=") || !b.log.has("level=WARN", "unknown types", "count=1") {
		t.Errorf("it is not told: %s", b.log.buf.String())
	}
	if s.View().Unknown() != 1 {
		t.Errorf("%d unknown records, want 1", s.View().Unknown())
	}
	if err := s.Append(b.ctx, n, bad); err == nil || mirror.KindOf(err) != mirror.Refused {
		t.Errorf("append to a stopped shard: %v", err)
	}
	for i := range int32(20) {
		if r := state(i, mirror.Mirroring); r.Shard(2) != n {
			b.must(s.Append(b.ctx, r.Shard(2), r))
		}
	}
	if _, now := s.View().position(n); now != before {
		t.Error("the topic changed")
	}
}

func TestDeletedStateTopicIsWrittenAgain(t *testing.T) {
	b := newBench(t)
	s := b.store("one", 3)
	b.join(s)
	b.claim(s)
	for i := range int32(9) {
		b.must(s.Append(b.ctx, state(i, 0).Shard(3), state(i, mirror.Mirroring)))
	}
	_, before := s.View().position(0)
	m, err := b.cluster.Metadata(b.ctx, StateTopic)
	b.must(err)
	b.must(b.cluster.DeleteTopic(b.ctx, StateTopic, m.Topics[StateTopic].ID))
	b.eventually("topic created again", func() bool { _, id := s.View().position(0); return id != before })
	r := state(3, mirror.Paused)
	b.eventually("group has the new topic", func() bool { return s.Append(b.ctx, r.Shard(3), r) == nil })
	for n := range int32(3) {
		b.must(s.Append(b.ctx, n))
	}
	loaded, err := Load(b.ctx, b.cluster)
	b.must(err)
	if got, want := fmt.Sprint(loaded.Partitions("east")), fmt.Sprint(s.View().Partitions("east")); got != want || len(s.View().Partitions("east")) != 9 {
		t.Errorf("the new topic holds %s, want %s", got, want)
	}
	if got := b.cluster.TopicConfigs(b.ctx, StateTopic)[StateTopic].Entries["cleanup.policy"].Value; got != "compact" {
		t.Errorf("cleanup.policy of the new topic: %q", got)
	}
}

func TestEnsureTopicsCorrectsAndTells(t *testing.T) {
	b := newBench(t)
	_, err := b.cluster.CreateTopic(b.ctx, kafka.TopicSpec{
		Name: StateTopic, Partitions: 3, ReplicationFactor: 1,
		Configs: map[string]string{"cleanup.policy": "delete"},
	})
	b.must(err)
	shards, err := EnsureTopics(b.ctx, b.cluster, config(5), b.logger())
	b.must(err)
	if shards != 3 || !b.log.has(StateTopic, "found=3", "configured=5") {
		t.Errorf("%d shards; log: %s", shards, b.log.buf.String())
	}
	if !b.log.has(StateTopic, "cleanup.policy", "from=delete", "to=compact") {
		t.Errorf("the corrected policy is not told: %s", b.log.buf.String())
	}
	configs := b.cluster.TopicConfigs(b.ctx, StateTopic, CommandsTopic)
	if got := configs[StateTopic].Entries["cleanup.policy"].Value; got != "compact" {
		t.Errorf("cleanup.policy is %q", got)
	}
	if got := configs[CommandsTopic].Entries["retention.ms"].Value; got != "604800000" {
		t.Errorf("retention of commands is %q", got)
	}
	m, err := b.cluster.Metadata(b.ctx, CommandsTopic)
	b.must(err)
	if got := len(m.Topics[CommandsTopic].Partitions); got != 3 {
		t.Errorf("%d partitions of commands, want as many as of state", got)
	}
}

func TestEnsureTopicsNamesMissingBrokers(t *testing.T) {
	b := newBench(t)
	cfg := config(5)
	cfg.ReplicationFactor = 3
	_, err := EnsureTopics(b.ctx, b.cluster, cfg, b.logger())
	if mirror.KindOf(err) != mirror.Refused || !strings.Contains(err.Error(), "replication_factor") || !strings.Contains(err.Error(), "2 broker") {
		t.Errorf("got %v", err)
	}
}

func TestCommandsAreSeenUntilAnswered(t *testing.T) {
	b := newBench(t)
	s := b.store("one", 3)
	b.join(s)
	b.claim(s)
	n := mirror.ShardOfMirror("east", 3)
	var ids [][16]byte
	for range 3 {
		cmd := mirror.Command{ID: NewCommandID(), Verb: mirror.VerbPause, Mirror: "east", Topics: []string{"orders"}}
		ids = append(ids, cmd.ID)
		b.must(SubmitCommand(b.ctx, b.cluster, cmd))
	}
	b.eventually("commands seen", func() bool { return len(s.View().Commands(n)) == 3 })
	for i, c := range s.View().Commands(n) {
		if c.ID != ids[i] || c.Verb != mirror.VerbPause || c.Partition != n {
			t.Errorf("command %d: %+v", i, c)
		}
	}
	b.must(s.Append(b.ctx, n, CommandOutcome{mirror.Outcome{ID: ids[1], Mirror: "east"}}))
	if got := s.View().Commands(n); len(got) != 2 || got[1].ID != ids[2] {
		t.Errorf("after one answer: %+v", got)
	}
	if _, ok := s.View().Outcome(ids[1]); !ok {
		t.Error("the outcome is not shown")
	}
	b.must(s.Append(b.ctx, n, CommandCursor{n, s.View().Commands(n)[1].Offset + 1}))
	if got := s.View().Commands(n); len(got) != 0 {
		t.Errorf("behind the cursor: %+v", got)
	}
}

// What a command says about a destination's past counts only if it is older than the state topic: the one that defines
// the first mirror is not, however early it comes.
func TestOnlyCommandsOfThePastTellOfIt(t *testing.T) {
	b := newBench(t)
	create := mirror.Command{ID: NewCommandID(), Verb: mirror.VerbCreate, Mirror: "east"}
	first := b.store("one", 3)
	b.eventually("command taken", func() bool { return SubmitCommand(b.ctx, b.cluster, create) == nil })
	b.eventually("command seen", func() bool { return len(first.View().Commands(mirror.ShardOfMirror("east", 3))) == 1 })
	if !first.View().Fresh() || first.View().Commanded() {
		t.Errorf("fresh %v, commanded %v, of a new destination", first.View().Fresh(), first.View().Commanded())
	}
	later := b.store("two", 3)
	for n := range int32(3) {
		b.must(later.WaitLoaded(b.ctx, n))
	}
	b.eventually("command seen", func() bool { return len(later.View().Commands(mirror.ShardOfMirror("east", 3))) == 1 })
	if !later.View().Commanded() {
		t.Error("an instance that comes later takes a command that it finds for a new one")
	}
}

func TestLoadWithoutStateTopic(t *testing.T) {
	b := newBench(t)
	if _, err := Load(b.ctx, b.cluster); !errors.Is(err, ErrNoState) {
		t.Errorf("got %v", err)
	}
	if err := SubmitCommand(b.ctx, b.cluster, mirror.Command{Mirror: "east"}); !errors.Is(err, ErrNoState) {
		t.Errorf("submit: %v", err)
	}
}

func TestDeletedCommandsTopicIsCreatedAgain(t *testing.T) {
	b := newBench(t)
	s := b.store("one", 2)
	b.join(s)
	b.claim(s)
	m, err := b.cluster.Metadata(b.ctx, CommandsTopic)
	b.must(err)
	b.must(b.cluster.DeleteTopic(b.ctx, CommandsTopic, m.Topics[CommandsTopic].ID))
	cmd := mirror.Command{ID: NewCommandID(), Verb: mirror.VerbPause, Mirror: "east", Topics: []string{"orders"}}
	b.eventually("command taken", func() bool { return SubmitCommand(b.ctx, b.cluster, cmd) == nil })
	b.eventually("command seen", func() bool { return len(s.View().Commands(mirror.ShardOfMirror("east", 2))) == 1 })
}
