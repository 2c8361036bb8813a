package main

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

const (
	shards  = 3
	groupID = "mirrord"
)

type instanceKey struct{}

func instanceOf(ts *testscript.TestScript) *instance { return ts.Value(instanceKey{}).(*instance) }

// instance stands in for a running daemon: it owns all shards and puts into them what a script says.
type instance struct {
	addrs   []string
	cluster *kafka.Cluster
	store   *statestore.Store
	stops   []func()
	reports map[int32]statestore.ShardReport
}

func (i *instance) stop() {
	for n := len(i.stops) - 1; n >= 0; n-- {
		i.stops[n]()
	}
}

func (i *instance) start(ts *testscript.TestScript, executes bool) {
	cluster, err := kafka.Open(kafka.Config{Connection: mirror.Connection{BootstrapServers: i.addrs}})
	ts.Check(err)
	i.cluster = cluster
	i.stops = append(i.stops, cluster.Close)
	i.store = statestore.Open(statestore.Config{NumPartitions: shards, ReplicationFactor: 1, GroupID: groupID},
		statestore.Deps{Cluster: cluster, Instance: "host-1", Log: slog.New(slog.DiscardHandler)})
	i.run(i.store.Run)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ts.Check(i.store.WaitLoaded(ctx, shards-1))
	i.join(ctx, ts)
	for n := range int32(shards) {
		ts.Check(i.store.WaitLoaded(ctx, n))
		ts.Check(i.store.Append(ctx, n, statestore.ShardClaim{ShardIndex: n, Number: 1, Owner: "host-1"}))
	}
	if executes {
		i.run(i.execute)
	}
}

// run runs an actor until the script ends.
func (i *instance) run(actor func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); actor(ctx) }()
	i.stops = append(i.stops, func() { cancel(); <-ended })
}

func (i *instance) join(ctx context.Context, ts *testscript.TestScript) {
	joined := make(chan struct{}, 1)
	client, err := kgo.NewClient(append(i.cluster.Opts(), kgo.ConsumerGroup(groupID), kgo.ConsumeTopics(statestore.StateTopic),
		kgo.DisableAutoCommit(), kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, _ map[string][]int32) {
			id, generation := cl.GroupMetadata()
			i.store.SetMember(id, generation, nil)
			select {
			case joined <- struct{}{}:
			default:
			}
		}))...)
	ts.Check(err)
	client.PauseFetchTopics(statestore.StateTopic)
	i.stops = append(i.stops, client.CloseAllowingRebalance)
	select {
	case <-joined:
	case <-ctx.Done():
		ts.Fatalf("the group was not joined in time")
	}
}

func (i *instance) append(ctx context.Context, records ...statestore.Record) error {
	for _, r := range records {
		if err := i.store.Append(ctx, r.Shard(shards), r); err != nil {
			return err
		}
	}
	return nil
}

func (i *instance) mirror(ts *testscript.TestScript, name string) {
	d := mirror.DefaultDefinition(name)
	d.Source.BootstrapServers = []string{"source:9092"}
	ts.Check(i.append(context.Background(), statestore.Mirror{Definition: d, LearntClusterID: "source-id", Version: 1}))
}

// group args: mirror, topic, name in Go's quotes.
func (i *instance) group(ts *testscript.TestScript, args []string) {
	name, err := strconv.Unquote(args[2])
	ts.Check(err)
	row := statestore.GroupRow{Topic: args[1], SourceOffset: 5, DestinationOffset: 5, Status: "synced"}
	ts.Check(i.append(context.Background(), statestore.GroupStatus{Mirror: args[0], Group: name, Type: "classic", Rows: []statestore.GroupRow{row}}))
}

// topic args: mirror, name, partitions, state.
func (i *instance) topic(ts *testscript.TestScript, args []string) {
	ctx := context.Background()
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	_, err = i.cluster.CreateTopic(ctx, kafka.TopicSpec{Name: args[1], Partitions: int32(n), ReplicationFactor: 1})
	ts.Check(err)
	client, err := kgo.NewClient(append(i.cluster.Opts(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	ts.Check(err)
	defer client.Close()
	state := stateNamed(ts, args[3])
	t := statestore.Topic{Mirror: args[0], Name: args[1], SourceID: idOf(args[1]), Partitions: int32(n), Wish: wishOf(state)}
	t.Promoted = state == mirror.Stopped
	records := []statestore.Record{t}
	for index := range t.Partitions {
		p := mirror.Partition{Mirror: t.Mirror, TopicID: t.SourceID, Index: index}
		s := statestore.PartitionState{Partition: p, Topic: t.Name, State: state, Previous: mirror.NotRecorded, LeaderEpoch: -1}
		if state == mirror.Failed {
			s.RetryAttempt, s.Previous, s.ErrorMessage, s.Kind = -1, mirror.Mirroring, "both sides differ from offset 5 on", mirror.Diverged
		}
		records = append(records, s)
		shard := s.Shard(shards)
		report := i.reports[shard]
		report.ShardIndex, report.Owner = shard, "host-1"
		report.Positions = append(report.Positions, statestore.ReportedPosition{Partition: p, SourceOffset: 12, DestinationOffset: 8, LagMillis: 1500})
		i.reports[shard] = report
		for range 10 {
			ts.Check(client.ProduceSync(ctx, &kgo.Record{Topic: t.Name, Partition: index, Value: []byte("v")}).FirstErr())
		}
	}
	for _, r := range i.reports {
		records = append(records, r)
	}
	ts.Check(i.append(ctx, records...))
}

// idOf is a topic id that follows from the name.
func idOf(topic string) (id mirror.TopicID) {
	copy(id[:], topic)
	return id
}

func stateNamed(ts *testscript.TestScript, name string) mirror.State {
	for _, s := range mirror.States() {
		if s.String() == name {
			return s
		}
	}
	ts.Fatalf("no state %s", name)
	return mirror.Unknown
}

func wishOf(s mirror.State) mirror.State {
	switch s {
	case mirror.Paused, mirror.Stopped:
		return s
	}
	return mirror.Mirroring
}

// execute answers commands as a coordinator would, in the simplest way: what is wished is so at once.
func (i *instance) execute(ctx context.Context) error {
	for {
		changed := i.store.View().Changed()
		for n := range int32(shards) {
			for _, cmd := range i.store.View().Commands(n) {
				if err := i.append(ctx, i.answer(cmd.Command)...); err != nil {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (i *instance) answer(cmd mirror.Command) []statestore.Record {
	v := i.store.View()
	outcome := mirror.Outcome{ID: cmd.ID, Verb: cmd.Verb, Mirror: cmd.Mirror}
	var records []statestore.Record
	if cmd.Verb == mirror.VerbCreate {
		d := mirror.DefaultDefinition(cmd.Mirror)
		d.Source.BootstrapServers = []string{cmd.Settings["bootstrap.servers"]}
		records = append(records, statestore.Mirror{Definition: d, Version: 1})
	}
	wish, ok := map[mirror.Verb]mirror.State{mirror.VerbPause: mirror.Paused, mirror.VerbStop: mirror.Stopped, mirror.VerbResume: mirror.Mirroring}[cmd.Verb]
	for _, item := range cmd.Topics {
		p, _ := mirror.ParsePattern(item)
		matched := false
		for _, t := range v.Topics(cmd.Mirror) {
			if !ok || !p.Match(t.Name) {
				continue
			}
			matched = true
			t.Wish, t.Promoted = wish, wish == mirror.Stopped
			records = append(records, t)
			for _, s := range v.Partitions(cmd.Mirror) {
				if s.Topic == t.Name && s.State != mirror.Failed {
					s.State = wish
					records = append(records, s)
				}
			}
		}
		if !matched {
			outcome.Topics = append(outcome.Topics, mirror.TopicOutcome{Topic: item, Refused: true, Message: "topic " + item + " is not in mirror " + cmd.Mirror})
		}
	}
	return append(records, statestore.CommandOutcome{Outcome: outcome})
}
