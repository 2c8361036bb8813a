package kafka

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// requestCounter counts what a fake cluster is asked, by key.
type requestCounter struct {
	mu sync.Mutex
	n  map[int16]int
}

func countRequests(fake *kfake.Cluster) *requestCounter {
	c := &requestCounter{n: map[int16]int{}}
	fake.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.n[req.Key()]++
		return nil, nil, false
	})
	return c
}

func (c *requestCounter) of(key kmsg.Key) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[key.Int16()]
}

func TestCreateTopicTellsItsIDAndAppliesItsSettings(t *testing.T) {
	fake := startFake(t)
	c, ctx := openFake(t, fake), testContext(t)
	id, err := c.CreateTopic(ctx, TopicSpec{
		Name: "orders", Partitions: 3, ReplicationFactor: -1,
		Configs: map[string]string{"compression.type": "producer", "retention.ms": "-1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Metadata(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Topics["orders"]; got.ID != id || id.IsZero() || len(got.Partitions) != 3 {
		t.Errorf("created %v with %d partitions, the answer said %v", got.ID, len(got.Partitions), id)
	}
	want := map[string]string{"compression.type": "producer", "retention.ms": "-1"}
	if got := c.TopicConfigs(ctx, "orders")["orders"].Explicit(); !maps.Equal(got, want) {
		t.Errorf("explicit settings %v, want %v", got, want)
	}
}

func TestCreateTopicsRefusesOneByOne(t *testing.T) {
	fake, c, _ := fakeWithTopic(t, 1)
	counts := countRequests(fake)
	created := c.CreateTopics(testContext(t), []TopicSpec{
		{Name: "new", Partitions: 1, ReplicationFactor: 1},
		{Name: "t", Partitions: 1, ReplicationFactor: 1},
		{Name: "bad", Partitions: 1, ReplicationFactor: 7},
	})
	if created[0].Err != nil || created[0].ID.IsZero() {
		t.Errorf("new: %+v", created[0])
	}
	if !TopicExists(created[1].Err) || mirror.KindOf(created[1].Err) != mirror.Refused {
		t.Errorf("existing topic: %v", created[1].Err)
	}
	if err := created[2].Err; err == nil || mirror.KindOf(err) != mirror.Refused || !strings.Contains(err.Error(), "create topic bad") {
		t.Errorf("bad replication factor: %v", err)
	}
	if n := counts.of(kmsg.CreateTopics); n != 1 {
		t.Errorf("%d requests for 3 topics", n)
	}
}

func TestCreateChunk(t *testing.T) {
	specs := func(n int, partitions int32) []TopicSpec {
		return slices.Repeat([]TopicSpec{{Partitions: partitions}}, n)
	}
	for _, tc := range []struct {
		n          int
		partitions int32
		want       int
	}{
		{1, 1, 1},
		{topicsPerCreate, 1, topicsPerCreate},
		{topicsPerCreate + 1, 1, topicsPerCreate},
		{3, partitionsPerCreate, 1},
		{1, 2 * partitionsPerCreate, 1},
		{10, partitionsPerCreate / 4, 4},
	} {
		if got := createChunk(specs(tc.n, tc.partitions)); got != tc.want {
			t.Errorf("%d topics of %d partitions: first chunk %d, want %d", tc.n, tc.partitions, got, tc.want)
		}
	}
}

func TestCreatePartitions(t *testing.T) {
	_, c, _ := fakeWithTopic(t, 2)
	ctx := testContext(t)
	failed := c.CreatePartitions(ctx, map[string]int32{"t": 5, "none": 3})
	if !UnknownTopic(failed["none"]) || len(failed) != 1 {
		t.Errorf("failed: %v", failed)
	}
	if m, err := c.Metadata(ctx, "t"); err != nil || len(m.Topics["t"].Partitions) != 5 {
		t.Errorf("grown to %d, %v", len(m.Topics["t"].Partitions), err)
	}
}

func TestDeleteTopicOnlyTheOneMeant(t *testing.T) {
	_, c, m := fakeWithTopic(t, 1)
	ctx := testContext(t)
	other := m.Topics["t"].ID
	other[0]++
	if err := c.DeleteTopic(ctx, "t", other); !UnknownTopic(err) {
		t.Errorf("another id: %v", err)
	}
	if err := c.DeleteTopic(ctx, "t", mirror.TopicID{}); mirror.KindOf(err) != mirror.Refused {
		t.Errorf("no id: %v", err)
	}
	if m, err := c.Metadata(ctx, "t"); err != nil || m.Topics["t"].Err != nil {
		t.Fatalf("the topic went with another id: %v", err)
	}
	if err := c.DeleteTopic(ctx, "t", m.Topics["t"].ID); err != nil {
		t.Fatal(err)
	}
	if m, err := c.Metadata(ctx, "t"); err != nil || !UnknownTopic(m.Topics["t"].Err) {
		t.Errorf("still there: %v, %v", m.Topics["t"].Err, err)
	}
}

func TestAlterTopicConfigsSetsAndDeletes(t *testing.T) {
	_, c, _ := fakeWithTopic(t, 1)
	ctx := testContext(t)
	for _, change := range []ConfigChange{
		{Topic: "t", Set: map[string]string{"retention.ms": "1000", "segment.bytes": "1048576"}},
		{Topic: "t", Set: map[string]string{"retention.ms": "2000"}, Delete: []string{"segment.bytes"}},
	} {
		if failed := c.AlterTopicConfigs(ctx, []ConfigChange{change}); len(failed) > 0 {
			t.Fatal(failed)
		}
	}
	cs := c.TopicConfigs(ctx, "t", "none")
	if got := cs["t"].Explicit(); !maps.Equal(got, map[string]string{"retention.ms": "2000"}) {
		t.Errorf("explicit settings %v", got)
	}
	if e := cs["t"].Entries["segment.bytes"]; e.Explicit() || e.Value == "" {
		t.Errorf("deleted setting is %+v, want a default", e)
	}
	if !cs["t"].Knows("retention.ms") || cs["t"].Knows("mirror.name") {
		t.Error("wrong about the keys that the cluster knows")
	}
	if !UnknownTopic(cs["none"].Err) {
		t.Errorf("missing topic: %v", cs["none"].Err)
	}
	failed := c.AlterTopicConfigs(ctx, []ConfigChange{{Topic: "none", Delete: []string{"retention.ms"}}, {Topic: "t", Delete: []string{"retention.ms"}}})
	if len(failed) != 1 || failed["none"] == nil {
		t.Errorf("failed: %v", failed)
	}
}

func TestKnownTopicConfigs(t *testing.T) {
	_, c, _ := fakeWithTopic(t, 1)
	ctx := testContext(t)
	known, err := c.KnownTopicConfigs(ctx, "t")
	if err != nil || !known["retention.ms"] || known["mirror.name"] {
		t.Errorf("%v, %v", known, err)
	}
	if _, err := c.KnownTopicConfigs(ctx, "none"); !UnknownTopic(err) {
		t.Errorf("missing topic: %v", err)
	}
}

func TestUnreachableClusterIsEveryItemsError(t *testing.T) {
	fake, _, m := fakeWithTopic(t, 1)
	c, ctx := openCluster(t, Config{
		Connection:     mirror.Connection{BootstrapServers: fake.ListenAddrs()},
		RequestTimeout: 100 * time.Millisecond, DialTimeout: 100 * time.Millisecond,
	}), testContext(t)
	if _, err := c.Metadata(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	fake.Close()
	at := TopicPartition{"t", 0}
	_, list := c.ListGroups(ctx)
	_, acls := c.DescribeACLs(ctx)
	_, ops := c.ClusterOperations(ctx)
	for name, err := range map[string]error{
		"configs": c.TopicConfigs(ctx, "t")["t"].Err, "offsets": c.FetchOffsets(ctx, "g")["g"].Err,
		"commit": c.CommitOffsets(ctx, "g", map[TopicPartition]CommittedOffset{at: {}})[at],
		"trim":   c.DeleteRecords(ctx, map[TP]int64{tp(0): 1})[tp(0)].Err,
		"delete": c.DeleteTopic(ctx, "t", m.Topics["t"].ID), "elect": c.ElectPreferred(ctx, []TopicPartition{at})[at],
		"groups": list, "acls": acls, "rights": ops,
	} {
		if err == nil || mirror.KindOf(err) != mirror.Unreachable {
			t.Errorf("%s: %v is %v", name, err, mirror.KindOf(err))
		}
	}
}

func TestConfigsAreReadInFewRequests(t *testing.T) {
	fake, c, _ := fakeWithTopic(t, 1)
	counts := countRequests(fake)
	names := make([]string, 2*configsPerRequest)
	for i := range names {
		names[i] = fmt.Sprintf("t-%d", i)
	}
	if got := c.TopicConfigs(testContext(t), names...); len(got) != len(names) {
		t.Errorf("%d answers for %d topics", len(got), len(names))
	}
	if n := counts.of(kmsg.DescribeConfigs); n != 2 {
		t.Errorf("%d requests for %d topics", n, len(names))
	}
}

func TestBrokerConfigsOfAllBrokers(t *testing.T) {
	fake := startFake(t, kfake.NumBrokers(3), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "12345"}))
	c := openFake(t, fake)
	all, err := c.BrokerConfigs(testContext(t), "message.max.bytes")
	if err != nil || len(all) != 3 {
		t.Fatalf("%d brokers, %v", len(all), err)
	}
	for id, cs := range all {
		if cs.Err != nil || cs.Entries["message.max.bytes"].Value != "12345" || len(cs.Entries) != 1 {
			t.Errorf("broker %d: %+v", id, cs)
		}
	}
}

func TestDeleteRecordsByLeader(t *testing.T) {
	fake := startFake(t, kfake.NumBrokers(3), kfake.SeedTopics(6, "t"))
	c, ctx := openFake(t, fake), testContext(t)
	m, err := c.Metadata(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	to := map[TP]int64{}
	for p := range int32(6) {
		mustProduce(t, dialLeader(t, c, m, p), p, testBatch(10, recordbatch.Identity{ProducerID: testProducer}))
		to[tp(p)] = 4
	}
	to[tp(0)] = 11
	counts := countRequests(fake)
	for tp, d := range c.DeleteRecords(ctx, to) {
		if tp.Partition == 0 {
			if !OutOfRange(d.Err) {
				t.Errorf("beyond the high watermark: %+v", d)
			}
		} else if d.Err != nil || d.LogStart != 4 {
			t.Errorf("%v: %+v", tp, d)
		}
	}
	if n := counts.of(kmsg.DeleteRecords); n > 3 {
		t.Errorf("%d requests to 3 brokers", n)
	}
}

func TestEffectsAskForTheLeaseFirst(t *testing.T) {
	fake, c, m := fakeWithTopic(t, 1)
	lost := errors.New("lease lost")
	ctx := WithLease(testContext(t), func() error { return lost })
	counts := countRequests(fake)
	errs := map[string]error{
		"create": func() error { _, err := c.CreateTopic(ctx, TopicSpec{Name: "x", Partitions: 1}); return err }(),
		"delete": c.DeleteTopic(ctx, "t", m.Topics["t"].ID),
		"alter":  c.AlterTopicConfigs(ctx, []ConfigChange{{Topic: "t", Delete: []string{"retention.ms"}}})["t"],
		"trim":   c.DeleteRecords(ctx, map[TP]int64{tp(0): 0})[tp(0)].Err,
		"commit": c.CommitOffsets(ctx, "g", map[TopicPartition]CommittedOffset{{"t", 0}: {}})[TopicPartition{"t", 0}],
		"groups": c.DeleteGroups(ctx, "g")["g"],
		"acls":   c.CreateACLs(ctx, []ACL{exampleACL})[0],
		"turns":  func() error { _, err := c.PlaceInTurn(ctx, []Turn{{Elect: []TopicPartition{{"t", 0}}}}); return err }(),
		"raise":  func() error { _, err := c.AddThenCancel(ctx, map[TopicPartition][]int32{{"t", 0}: {0, 1}}); return err }(),
	}
	for name, err := range errs {
		if !errors.Is(err, lost) || !errors.Is(err, ErrNotSent) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, key := range []kmsg.Key{
		kmsg.CreateTopics, kmsg.DeleteTopics, kmsg.IncrementalAlterConfigs, kmsg.DeleteRecords,
		kmsg.OffsetCommit, kmsg.DeleteGroups, kmsg.CreateACLs, kmsg.ElectLeaders, kmsg.AlterPartitionAssignments,
	} {
		if n := counts.of(key); n != 0 {
			t.Errorf("%d requests of key %d were sent without the lease", n, key)
		}
	}
	if cs := c.TopicConfigs(ctx, "t"); cs["t"].Err != nil {
		t.Errorf("a read asked for the lease: %v", cs["t"].Err)
	}
}

func TestRequestsThatTheBrokerDoesNotServe(t *testing.T) {
	fake := startFake(t, kfake.MaxVersions(kversion.V2_5_0()))
	c, ctx := openFake(t, fake), testContext(t)
	_, quotas := c.ClientQuotas(ctx)
	if ops, err := c.ClusterOperations(ctx); err != nil || !ops.Has(OpAlter) { // by another request
		t.Errorf("rights: %b, %v", ops, err)
	}
	_, users := c.ScramUsers(ctx)
	for name, err := range map[string]error{
		"quotas": quotas, "users": users,
		"share groups": c.FetchShareOffsets(ctx, "g")["g"].Err,
		"delete by id": c.DeleteTopic(ctx, "t", mirror.TopicID{1}),
	} {
		if !UnsupportedVersion(err) || mirror.KindOf(err) != mirror.Refused {
			t.Errorf("%s: %v is not recognised", name, err)
		}
	}
}

func TestAnswerErrorKeepsTheBrokersReason(t *testing.T) {
	err := answerError("create topic x", kerr.PolicyViolation.Code, kmsg.StringPtr("no more than 3"))
	if !PolicyViolation(err) || mirror.KindOf(err) != mirror.Refused || !strings.Contains(err.Error(), "no more than 3") {
		t.Errorf("%v", err)
	}
	if err := answerError("x", 0, nil); err != nil {
		t.Errorf("code 0: %v", err)
	}
}
