package mmm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// mirrorOf has the destination hold what the source holds: n records in each partition.
func (r *rig) mirrorOf(topic string, partitions int32, n int) {
	r.t.Helper()
	r.eventually(topic+" is mirrored", func() bool { return !r.record(topic).DestinationID.IsZero() })
	r.write(r.fd, topic, partitions, n)
}

func (r *rig) row(group, topic string, partition int32) statestore.GroupRow {
	for _, g := range r.state.Groups("m") {
		for _, row := range g.Rows {
			if g.Group == group && row.Topic == topic && row.Partition == partition {
				return row
			}
		}
	}
	return statestore.GroupRow{}
}

func TestCommittedOffsetsFollow(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t", "u")})
	r.topic("t", 2, 100)
	r.topic("u", 1, 100)
	r.topic("foreign", 1, 100)
	r.commit(r.s, "g", "t", 0, 40)
	r.commit(r.s, "g", "t", 1, 60)
	r.commit(r.s, "g", "foreign", 0, 50)
	r.run()
	r.mirrorOf("t", 2, 100)
	r.mirrorOf("u", 1, 100)
	r.eventually("both are level", func() bool { return r.committed(r.d, "g", "t", 0) == 40 && r.committed(r.d, "g", "t", 1) == 60 })
	all, _ := r.d.FetchOffsets(t.Context(), "g")
	if o, _ := all.Lookup("t", 0); o.LeaderEpoch != -1 || o.Metadata != "text" {
		t.Errorf("committed %+v", o)
	}
	if r.committed(r.d, "g", "foreign", 0) != -1 {
		t.Error("an offset in a topic that is not mirrored was copied")
	}
	r.commit(r.s, "g", "t", 0, 10) // reset backwards
	r.eventually("the reset is followed", func() bool { return r.committed(r.d, "g", "t", 0) == 10 })

	r.wish("t", func(t *statestore.Topic) { t.Wish = mirror.Paused })
	r.commit(r.s, "g", "t", 0, 77)
	r.cycles(3)
	if r.committed(r.d, "g", "t", 0) != 10 {
		t.Error("a paused topic's offset was touched")
	}
	r.wish("t", start)
	r.eventually("resumed", func() bool { return r.committed(r.d, "g", "t", 0) == 77 })
	r.eventually("the row says so", func() bool {
		row := r.row("g", "t", 0)
		return row.Status == StatusSynced && row.SourceOffset == 77 && row.DestinationOffset == 77
	})
	before := r.state.count()
	r.cycles(3)
	if now := r.state.count(); now != before {
		t.Errorf("%d records were written with nothing changed", now-before)
	}
}

func TestOffsetsDeletedAtTheSourceAreDeleted(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t", "stopped")})
	r.topic("t", 2, 100)
	r.topic("stopped", 1, 100)
	r.commit(r.s, "g", "t", 0, 40)
	r.commit(r.s, "g", "t", 1, 40)
	r.commit(r.s, "g", "stopped", 0, 40)
	r.run()
	r.mirrorOf("t", 2, 100)
	r.mirrorOf("stopped", 1, 100)
	r.eventually("all are level", func() bool {
		return r.committed(r.d, "g", "t", 0) == 40 && r.committed(r.d, "g", "t", 1) == 40 && r.committed(r.d, "g", "stopped", 0) == 40
	})
	r.wish("stopped", stop)
	r.eventually("promoted", func() bool { return r.record("stopped").Promoted })
	r.commit(r.d, "g", "t", 1, 90) // moved on by itself
	if _, err := r.s.DeleteGroups(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is deleted", func() bool { return r.committed(r.d, "g", "t", 0) == -1 })
	r.cycles(2)
	if r.committed(r.d, "g", "t", 1) != 90 || r.committed(r.d, "g", "stopped", 0) != 40 {
		t.Errorf("moved offset %d, stopped topic's %d", r.committed(r.d, "g", "t", 1), r.committed(r.d, "g", "stopped", 0))
	}
}

// Offsets vanish at the source together with their topic: that is no reason to take the copy's away.
func TestADeletedSourceTopicKeepsItsGroups(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t")})
	r.topic("t", 1, 100)
	r.commit(r.s, "g", "t", 0, 40)
	r.run()
	r.mirrorOf("t", 1, 100)
	r.eventually("level", func() bool { return r.committed(r.d, "g", "t", 0) == 40 })
	must(t, r.fs.DeleteTopic("t"))
	if _, err := r.s.DeleteGroups(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	r.eventually("the finding", func() bool { return r.record("t").Finding.Kind == mirror.SourceGone })
	r.cycles(2)
	if got := r.committed(r.d, "g", "t", 0); got != 40 {
		t.Errorf("committed %d, want 40", got)
	}
}

func TestActiveGroupsAreSkipped(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t")})
	r.topic("t", 1, 100)
	must(t, r.fd.CreateTopic("elsewhere", 1, nil))
	consumer, err := kgo.NewClient(kgo.SeedBrokers(r.fd.ListenAddrs()...), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("elsewhere"))
	must(t, err)
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	polling := make(chan struct{})
	go func() { defer close(polling); consumer.PollFetches(ctx) }()
	if _, err := r.fd.WaitGroupStable(ctx, "g", 1); err != nil {
		t.Fatal(err)
	}
	r.commit(r.s, "g", "t", 0, 60)
	r.commit(r.s, "h", "t", 0, 70)
	r.run()
	r.mirrorOf("t", 1, 100)
	r.eventually("the other group goes on", func() bool { return r.committed(r.d, "h", "t", 0) == 70 })
	r.eventually("it is told", func() bool {
		row := r.row("g", "t", 0)
		return row.Status == StatusSkipped && row.Reason == reasonActive
	})
	r.cycles(3)
	if n := r.log.lines("groups skipped"); n != 1 {
		t.Errorf("%d log lines, want 1", n)
	}
	cancel()
	<-polling
	consumer.Close()
	r.eventually("it follows once it is idle", func() bool { return r.committed(r.d, "g", "t", 0) == 60 })
}

func TestAGroupThatWentOnAfterTheStopIsLeftAlone(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t")})
	r.topic("t", 1, 100)
	r.commit(r.s, "g", "t", 0, 100)
	end := r.run()
	r.mirrorOf("t", 1, 100)
	r.eventually("level", func() bool { return r.committed(r.d, "g", "t", 0) == 100 })
	r.wish("t", stop)
	r.eventually("promoted", func() bool { return r.record("t").Promoted })
	r.write(r.fd, "t", 1, 50)
	r.commit(r.d, "g", "t", 0, 150)
	end()
	r.registry = nil
	r.deps.Registerer = nil
	r.run()
	r.cycles(3)
	if got := r.committed(r.d, "g", "t", 0); got != 150 {
		t.Errorf("committed %d after a restart, want 150", got)
	}
}

func TestShareGroupsFollow(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t")})
	r.topic("t", 1, 100)
	start := func(c *kafka.Cluster) int64 {
		o := c.FetchShareOffsets(t.Context(), "share")["share"]
		if at, ok := o.Starts[kafka.TopicPartition{Topic: "t"}]; ok {
			return at
		}
		return -1
	}
	if failed := r.src.AlterShareOffsets(t.Context(), "share", map[kafka.TopicPartition]int64{{Topic: "t"}: 25}); len(failed) > 0 {
		t.Fatal(failed)
	}
	r.run()
	r.mirrorOf("t", 1, 100)
	r.eventually("the share group is level", func() bool { return start(r.dst) == 25 && r.row("share", "t", 0).Status == StatusSynced })
	if failed := r.src.AlterShareOffsets(t.Context(), "share", map[kafka.TopicPartition]int64{{Topic: "t"}: 5}); len(failed) > 0 {
		t.Fatal(failed)
	}
	r.eventually("its reset is followed", func() bool { return start(r.dst) == 5 })
}

// withACLs is a rig with an authorizer on both sides where mirrord logs in as a user.
func withACLs(user string, super bool, acls ...kfake.ACL) rigOptions {
	login := kfake.Superuser("PLAIN", "mirrord", "secret")
	if !super {
		login = kfake.User("PLAIN", user, "secret", acls...)
	}
	opts := []kfake.Opt{kfake.EnableSASL(), kfake.EnableACLs(), login}
	return rigOptions{source: opts, destination: opts, security: mirror.Security{
		Protocol: "SASL_PLAINTEXT",
		SASL:     mirror.SASL{Mechanism: "PLAIN", Username: user, Password: "${env:MMM_TEST_PASSWORD}"},
	}}
}

func (r *rig) aclsOf(c *kafka.Cluster) []kafka.ACL {
	acls, err := c.DescribeACLs(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return acls
}

func TestACLsFollowAndRightsToWriteWait(t *testing.T) {
	t.Setenv("MMM_TEST_PASSWORD", "secret")
	o := withACLs("mirrord", true)
	o.define = including("t")
	r := newRig(t, o)
	r.createTopic("t")
	read, write, last := acl(allow, "READ", "t", "User:a"), acl(allow, "WRITE", "t", "User:a"), acl(allow, "READ", "t", "User:b")
	local := acl(allow, "DESCRIBE", "t", "User:local")
	noErrors(t, r.src.CreateACLs(t.Context(), []kafka.ACL{read, write, last}))
	noErrors(t, r.dst.CreateACLs(t.Context(), []kafka.ACL{local}))
	r.run()
	has := func(a kafka.ACL) bool { return slices.Contains(r.aclsOf(r.dst), a) }
	r.eventually("the right to read is there", func() bool { return has(read) && has(last) && has(guardOf("t")) })
	if has(write) {
		t.Error("the right to write is granted while the topic is mirrored")
	}
	noErrors(t, r.src.DeleteACLs(t.Context(), []kafka.ACL{last}))
	r.eventually("what the source dropped is gone", func() bool { return !has(last) })
	r.cycles(2)
	if has(probeACL()) {
		t.Error("the probe is still there")
	}
	r.fs.Close() // the source is dead when the topic is promoted
	r.wish("t", stop)
	r.eventually("promoted", func() bool { return r.record("t").Promoted })
	if !has(write) || has(guardOf("t")) || !has(local) {
		t.Errorf("after the promotion: %v", r.aclsOf(r.dst))
	}
}

// A topic that is started again is handed over to the comparison of logs only once nobody can write to it any more, and
// its settings are a mirror's.
func TestR20_GuardedBeforeItIsCompared(t *testing.T) {
	t.Setenv("MMM_TEST_PASSWORD", "secret")
	o := withACLs("mirrord", true)
	o.define = including("t")
	r := newRig(t, o)
	r.createTopic("t")
	write := acl(allow, "WRITE", "t", "User:a")
	noErrors(t, r.src.CreateACLs(t.Context(), []kafka.ACL{write}))
	var bare []string
	r.deps.Put = func(ctx context.Context, name string, recs ...statestore.Record) error {
		for _, rec := range recs {
			if now, ok := rec.(statestore.Topic); ok && r.record("t").Unready && !now.Unready {
				rules := r.aclsOf(r.dst)
				if !slices.Contains(rules, guardOf("t")) || slices.Contains(rules, write) || r.setting("t", "compression.type") != "producer" {
					bare = append(bare, now.Name)
				}
			}
		}
		return r.state.put(ctx, name, recs...)
	}
	r.run()
	for range 3 {
		r.eventually("it is guarded", func() bool { return slices.Contains(r.aclsOf(r.dst), guardOf("t")) && !r.record("t").Unready })
		r.wish("t", stop)
		r.eventually("it is promoted", func() bool { return r.record("t").Promoted && slices.Contains(r.aclsOf(r.dst), write) })
		r.wish("t", func(t *statestore.Topic) { t.Wish, t.Promoted, t.Unready = mirror.Mirroring, false, true })
		r.eventually("it is ready", func() bool { return !r.record("t").Unready })
	}
	if len(bare) > 0 {
		t.Errorf("handed over %d times without guard or settings", len(bare))
	}
}

func TestTheGuardWouldLockOutAnOrdinaryUser(t *testing.T) {
	t.Setenv("MMM_TEST_PASSWORD", "secret")
	o := withACLs("plain", false, kfake.ACL{
		Resource: kmsg.ACLResourceTypeCluster, Name: "kafka-cluster", Pattern: kmsg.ACLResourcePatternTypeLiteral,
		Operation: kmsg.ACLOperationAlter, Allow: true,
	}, kfake.ACL{
		Resource: kmsg.ACLResourceTypeTopic, Name: "*", Pattern: kmsg.ACLResourcePatternTypeLiteral,
		Operation: kmsg.ACLOperationAll, Allow: true,
	})
	r := newRig(t, o)
	err := ProbeGuard(t.Context(), r.dst)
	if !errors.Is(err, ErrNotSuperUser) {
		t.Errorf("the guard of an ordinary user: %v", err)
	}
}

func TestWithoutAnAuthorizerItIsSaidOnce(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t")})
	r.topic("t", 1, 100)
	r.commit(r.s, "g", "t", 0, 50)
	noAuthorizer(r.fs)
	noAuthorizer(r.fd)
	r.run()
	r.mirrorOf("t", 1, 100)
	r.eventually("groups are synced", func() bool { return r.committed(r.d, "g", "t", 0) == 50 })
	r.cycles(4)
	if n := r.log.lines("authorizer"); n == 0 || n > 4 {
		t.Errorf("%d log lines about the missing authorizer, want 1 to 4", n)
	}
}

// agreed is a commit to which nothing speaks against.
func agreed(context.Context) error { return nil }

func TestReseed(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t")})
	r.topic("t", 1, 10, "segment.ms", "500000")
	r.run()
	r.mirrorOf("t", 1, 10)
	old := r.record("t")
	must(t, r.fs.DeleteTopic("t"))
	r.eventually("the finding", func() bool { return r.record("t").Finding.Kind == mirror.SourceGone })
	if _, err := r.manager.Reseed(t.Context(), "m", "t", agreed); err == nil || r.fd.TopicInfo("t") == nil {
		t.Fatalf("without a source topic: %v", err)
	}
	r.topic("t", 2, 5, "segment.ms", "700000")
	path, err := r.manager.Reseed(t.Context(), "m", "t", agreed)
	must(t, err)
	now := r.record("t")
	if now.SourceID == old.SourceID || now.DestinationID == old.DestinationID || now.Partitions != 2 || now.Finding.Message != "" || !now.Unready {
		t.Errorf("recreated %+v", now)
	}
	exported, err := os.ReadFile(filepath.Join(path, "partition-0.jsonl"))
	if err != nil || string(exported) != "t\n" {
		t.Errorf("exported %q, %v", exported, err)
	}
	if r.setting("t", "segment.ms") != "700000" || r.fd.PartitionInfo("t", 0).HighWatermark != 0 {
		t.Errorf("segment.ms %q", r.setting("t", "segment.ms"))
	}
	r.cycles(2)
	now.Unready = false
	if again := r.record("t"); again != now {
		t.Errorf("a refresh changed it to %+v", again)
	}
}

// What was decided to delete is looked at again after the export: nothing is deleted that is the only copy by then, that
// somebody writes to, or about which somebody has decided.
func TestReseedDeletesOnlyWhatItHasLookedAtAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(*rig)
		committed error
		kind      mirror.Kind
	}{
		"the source dies":           {meanwhile: func(r *rig) { r.fs.Close() }, kind: mirror.Unreachable},
		"the source topic goes":     {meanwhile: func(r *rig) { must(r.t, r.fs.DeleteTopic("t")) }, kind: mirror.SourceGone},
		"somebody writes":           {meanwhile: func(r *rig) { r.write(r.fd, "t", 1, 3) }, kind: mirror.Retriable},
		"somebody decides about it": {meanwhile: func(*rig) {}, committed: mirror.Errorf(mirror.Refused, "stopped"), kind: mirror.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{define: including("t")})
			r.topic("t", 1, 10)
			end := r.run()
			r.mirrorOf("t", 1, 10)
			end()
			r.manager.deps.Tail = func(context.Context, string, statestore.Topic, int32, io.Writer) (int64, error) {
				tt.meanwhile(r)
				return 0, nil
			}
			id, began := r.fd.TopicInfo("t").TopicID, r.record("t")
			_, err := r.manager.Reseed(t.Context(), "m", "t", func(context.Context) error { return tt.committed })
			if err == nil || mirror.KindOf(err) != tt.kind {
				t.Errorf("kind %v: %v", mirror.KindOf(err), err)
			}
			if now := r.fd.TopicInfo("t"); now == nil || now.TopicID != id {
				t.Error("the topic was deleted")
			}
			began.Rearm++ // its partitions are judged again
			if now := r.record("t"); now != began {
				t.Errorf("left as %+v, want %+v", now, began)
			}
		})
	}
}

// Partitions that are mirrored while another one of their topic has FAILED are halted, by a record that their owners obey,
// before anything is exported.
func TestReseedHaltsWhatIsMirrored(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t")})
	r.topic("t", 2, 10)
	end := r.run()
	r.mirrorOf("t", 2, 10)
	end()
	r.manager.deps.Put = func(ctx context.Context, name string, recs ...statestore.Record) error {
		if halted, ok := recs[0].(statestore.Topic); ok && halted.Finding == halting {
			r.write(r.fd, "t", 2, 1) // what was sent before arrives
		}
		return r.state.put(ctx, name, recs...)
	}
	r.manager.deps.Tail = func(context.Context, string, statestore.Topic, int32, io.Writer) (int64, error) {
		for _, p := range r.state.Partitions("m") {
			if p.State != mirror.Failed {
				t.Errorf("exported while partition %d is %s", p.Index, p.State)
			}
		}
		return 0, nil
	}
	id := r.record("t").DestinationID
	if _, err := r.manager.Reseed(t.Context(), "m", "t", agreed); err != nil {
		t.Fatal(err)
	}
	if now := r.record("t"); now.DestinationID == id || now.Finding.Message != "" {
		t.Errorf("%+v", now)
	}
}

// A crash between the creation and its record leaves an empty topic under an unknown id: the next attempt takes it.
func TestReseedGoesOnAfterACrash(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t")})
	r.topic("t", 1, 10)
	end := r.run()
	r.mirrorOf("t", 1, 10)
	end()
	must(t, r.fd.DeleteTopic("t"), r.fd.CreateTopic("t", 1, nil))
	if _, err := r.manager.Reseed(t.Context(), "m", "t", agreed); err != nil {
		t.Fatal(err)
	}
	if got := r.record("t").DestinationID; got.IsZero() || got != mirror.TopicID(r.fd.TopicInfo("t").TopicID) {
		t.Errorf("destination id %v", got)
	}
	must(t, r.fd.DeleteTopic("t"), r.fd.CreateTopic("t", 1, nil))
	r.write(r.fd, "t", 1, 3)
	if _, err := r.manager.Reseed(t.Context(), "m", "t", agreed); mirror.KindOf(err) != mirror.DestinationGone {
		t.Errorf("somebody else's topic: %v", err)
	}
}

func TestResolve(t *testing.T) {
	r := newRig(t, rigOptions{define: including()})
	for _, name := range []string{"audit.events", "audit-events", "auditXevents", "taken"} {
		r.topic(name, 1, 0)
	}
	must(t, r.state.put(t.Context(), "other", statestore.Mirror{Definition: mirror.Definition{Name: "other"}},
		statestore.Topic{Mirror: "other", Name: "taken", DestinationID: id('d'), Wish: mirror.Mirroring}))
	r.run()
	for _, tt := range []struct {
		items, exclude []string
		topics         string
		refused        []string
	}{
		{items: []string{"audit.events"}, topics: "audit.events"},
		{items: []string{"audit(.)events"}, topics: "audit-events audit.events auditXevents"},
		{items: []string{"audit.+"}, exclude: []string{"audit-.*"}, topics: "audit.events auditXevents"},
		{items: []string{"absent", "audit.events"}, topics: "audit.events", refused: []string{"absent"}},
		{items: []string{"to-come.*"}},
		{items: []string{"taken"}, refused: []string{"taken"}},
		{items: []string{"__consumer_offsets"}, refused: []string{"__consumer_offsets"}},
		{items: []string{"a("}, refused: []string{"a("}},
	} {
		topics, refused, err := r.manager.Resolve(t.Context(), "m", tt.items, tt.exclude)
		must(t, err)
		if strings.Join(topics, " ") != tt.topics || len(refused) != len(tt.refused) {
			t.Errorf("%v without %v: %v, refused %v", tt.items, tt.exclude, topics, refused)
		}
		for _, item := range tt.refused {
			if refused[item] == nil {
				t.Errorf("%v: %s is not refused", tt.items, item)
			}
		}
	}
}

func TestPreviewChangesNothing(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t", "new", "absent")})
	r.topic("t", 1, 100)
	r.commit(r.s, "g", "t", 0, 90)
	end := r.run()
	r.mirrorOf("t", 1, 60)
	r.eventually("the group is clamped", func() bool { return r.committed(r.d, "g", "t", 0) == 60 })
	end()
	r.topic("new", 2, 0)
	r.setDestination("segment.ms", "1")
	before := r.state.count()
	p, err := Preview(t.Context(), r.cfg, r.src, r.dst, r.state, "m")
	must(t, err)
	text := fmt.Sprintf("%+v", p)
	for _, words := range []string{"new Change:create with 2 partitions", "Topic:t Partition:0 Records:40", "Status:clamped", "absent matches no topic"} {
		if !strings.Contains(text, words) {
			t.Errorf("the plan does not say %q: %s", words, text)
		}
	}
	if r.state.count() != before || r.fd.TopicInfo("new") != nil {
		t.Error("the preview changed something")
	}
}

func (r *rig) createTopic(name string) {
	r.t.Helper()
	if _, err := r.s.CreateTopic(r.t.Context(), 1, 1, nil, name); err != nil {
		r.t.Fatal(err)
	}
}

func noErrors(t *testing.T, errs []error) {
	t.Helper()
	must(t, errs...)
}

// noAuthorizer makes a cluster answer about ACLs as one without an authorizer does.
func noAuthorizer(f *kfake.Cluster) {
	f.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		message := "No Authorizer is configured on the broker"
		switch req := req.(type) {
		case *kmsg.DescribeACLsRequest:
			resp := req.ResponseKind().(*kmsg.DescribeACLsResponse)
			resp.ErrorCode, resp.ErrorMessage = kerr.SecurityDisabled.Code, &message
			return resp, nil, true
		case *kmsg.CreateACLsRequest:
			resp := req.ResponseKind().(*kmsg.CreateACLsResponse)
			for range req.Creations {
				resp.Results = append(resp.Results, kmsg.CreateACLsResponseResult{ErrorCode: kerr.SecurityDisabled.Code, ErrorMessage: &message})
			}
			return resp, nil, true
		}
		return nil, nil, false
	})
}
