package mmm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

func including(items ...string) func(*mirror.Definition) {
	return func(d *mirror.Definition) { d.TopicsInclude = items }
}

func TestATopicIsCreatedWithItsSettings(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t")})
	r.topic("t", 3, 10, "cleanup.policy", "compact", "retention.ms", "60000")
	r.run()
	r.eventually("the topic is mirrored", func() bool { return r.record("t").Partitions == 3 && !r.record("t").DestinationID.IsZero() })
	for key, want := range map[string]string{"cleanup.policy": "compact", "retention.ms": "-1", "compression.type": "producer"} {
		if got := r.setting("t", key); got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if owned, _ := r.state.Settings("m", "t"); !slices.Contains(owned.Owned, "cleanup.policy") {
		t.Errorf("not recorded before it was set: %v", owned.Owned)
	}
	m, _ := r.state.Mirror("m")
	if m.LearntClusterID == "" || m.TransactionsMode == "" || m.FillersMode == "" {
		t.Errorf("learnt %+v", m)
	}
}

func TestARefusedCreationIsTriedAgain(t *testing.T) {
	r := newRig(t, rigOptions{define: func(d *mirror.Definition) { d.TopicsInclude, d.ReplicationFactor = []string{"t", "u"}, 3 }})
	r.topic("t", 1, 1)
	r.run()
	r.eventually("the reason is recorded", func() bool { return strings.Contains(strings.ToLower(r.record("t").Message), "replication") })
	r.cycles(3)
	if n := r.log.lines("topic waits", "topic=t"); n != 1 {
		t.Errorf("%d log lines about the refusal, want 1", n)
	}
	r.alter(func(m *statestore.Mirror) { m.ReplicationFactor = 1 })
	r.eventually("the topic is created", func() bool { return r.record("t").Message == "" && !r.record("t").DestinationID.IsZero() })
	if n := r.log.lines("u matches no topic"); n != 1 {
		t.Errorf("%d log lines about u, want 1", n)
	}
}

func TestThousandsOfUnmatchedPatternsAreOneLine(t *testing.T) {
	var items []string
	for i := range 3000 {
		items = append(items, fmt.Sprintf("absent-%04d-.*", i))
	}
	r := newRig(t, rigOptions{define: including(append(items, "t")...)})
	r.topic("t", 1, 1)
	r.run()
	r.eventually("the topic is mirrored", func() bool { return r.record("t").Partitions == 1 })
	r.cycles(2)
	if n := r.log.lines("without effect"); n != 1 || r.log.lines("without effect", "count=3000", "absent-0000-.*", "absent-0004-.*", "…") != 1 {
		t.Errorf("%d log lines about 3,000 patterns, want one with their number", n)
	}
}

func TestGrowthReachesTheDestinationFirst(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t")})
	r.topic("t", 1, 1)
	r.run()
	r.eventually("the topic is mirrored", func() bool { return r.record("t").Partitions == 1 })
	if _, err := r.s.UpdatePartitions(t.Context(), 4, "t"); err != nil {
		t.Fatal(err)
	}
	r.eventually("it has grown", func() bool { return r.record("t").Partitions == 4 })
	if n := len(r.fd.PartitionInfos("t")); n != 4 {
		t.Errorf("%d partitions at the destination", n)
	}
}

func TestDeletionAndRecreationAreFindings(t *testing.T) {
	r := newRig(t, rigOptions{define: including("gone", "again", "here")})
	for _, name := range []string{"gone", "again", "here"} {
		r.topic(name, 1, 1)
	}
	r.run()
	r.eventually("all are mirrored", func() bool {
		return !r.record("gone").DestinationID.IsZero() && !r.record("again").DestinationID.IsZero() && !r.record("here").DestinationID.IsZero()
	})
	r.cycles(2) // until the destination has shown what it created
	old := r.record("again").SourceID
	must(t, r.fs.DeleteTopic("gone"), r.fs.DeleteTopic("again"), r.fs.CreateTopic("again", 1, nil), r.fd.DeleteTopic("here"))
	r.eventually("findings", func() bool {
		return r.record("gone").Finding.Kind == mirror.SourceGone && r.record("again").Finding.Kind == mirror.SourceGone &&
			r.record("here").Finding.Kind == mirror.DestinationGone
	})
	if message := r.record("again").Finding.Message; !strings.Contains(message, old.String()) {
		t.Errorf("%q does not name the old id %s", message, old)
	}
	if r.fd.TopicInfo("here") != nil {
		t.Error("the destination topic came back by itself")
	}
	r.wish("here", func(t *statestore.Topic) {
		t.Finding, t.DestinationID, t.Rearm = statestore.Finding{}, mirror.TopicID{}, 1
	}) // recover
	r.eventually("recover creates it again", func() bool { return r.fd.TopicInfo("here") != nil && !r.record("here").DestinationID.IsZero() })
}

func TestATopicWithOtherPartitionsIsNotTouched(t *testing.T) {
	r := newRig(t, rigOptions{define: including("more", "fewer", "data")})
	for _, name := range []string{"more", "fewer", "data"} {
		r.topic(name, 6, 1)
	}
	must(t, r.fd.CreateTopic("more", 9, nil), r.fd.CreateTopic("fewer", 3, nil), r.fd.CreateTopic("data", 3, nil))
	r.write(r.fd, "data", 3, 2)
	r.run()
	r.eventually("decided", func() bool {
		return r.record("more").Finding.Kind == mirror.Diverged && r.record("fewer").Partitions == 6 && !r.record("data").DestinationID.IsZero()
	})
	if n := len(r.fd.PartitionInfos("fewer")); n != 6 {
		t.Errorf("fewer has %d partitions", n)
	}
	r.eventually("data is grown once compared", func() bool { return r.record("data").Partitions == 6 })
}

func TestAnotherClusterStopsTheMirror(t *testing.T) {
	r := newRig(t, rigOptions{define: including(".*")})
	r.topic("t", 1, 1)
	r.run()
	r.eventually("the topic is mirrored", func() bool { return !r.record("t").DestinationID.IsZero() })
	other, cluster := fakeCluster(t, mirror.Security{}, kfake.NumBrokers(1), kfake.ClusterID("another"), kfake.SeedTopics(1, "foreign"))
	defer other.Close()
	home := r.src
	r.swap(cluster)
	r.eventually("the finding", func() bool {
		m, _ := r.state.Mirror("m")
		return m.Finding.Kind == mirror.SourceChanged && strings.Contains(m.Finding.Message, "another")
	})
	if r.record("foreign").Name != "" || r.record("t").Finding.Message != "" {
		t.Error("the other cluster was looked at")
	}
	r.swap(home)
	r.eventually("the right cluster is back", func() bool { m, _ := r.state.Mirror("m"); return m.Finding.Message == "" })
}

func TestOneClusterOnBothSidesIsRefused(t *testing.T) {
	r := newRig(t, rigOptions{define: including(".*")})
	must(t, r.fd.CreateTopic("t", 1, nil))
	r.swap(r.dst)
	r.run()
	r.eventually("the finding", func() bool { m, _ := r.state.Mirror("m"); return m.Finding.Kind == mirror.Loop })
	m, _ := r.state.Mirror("m")
	if r.log.lines("mirror refused") == 0 || r.record("t").Name != "" || m.LearntClusterID != "" {
		t.Errorf("refused %v, topic %+v", r.log.lines("mirror refused"), r.record("t"))
	}
}

func TestSettingsFollowAndReturn(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t")})
	r.topic("t", 1, 1, "segment.ms", "500000", "retention.ms", "600000")
	r.run()
	r.eventually("the topic is mirrored", func() bool { return r.setting("t", "segment.ms") == "500000" })
	r.setDestination("flush.ms", "1234")
	r.setDestination("segment.ms", "1") // drift
	r.eventually("drift is overwritten", func() bool { return r.setting("t", "segment.ms") == "500000" })
	if _, err := r.s.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.DeleteConfig, Name: "segment.ms"}}, "t"); err != nil {
		t.Fatal(err)
	}
	r.eventually("what the source removes goes", func() bool { return r.setting("t", "segment.ms") == "" })
	r.wish("t", stop)
	r.eventually("the source's retention is back", func() bool { return r.setting("t", "retention.ms") == "600000" && r.record("t").Promoted })
	if r.setting("t", "flush.ms") != "1234" || r.setting("t", "compression.type") != "" {
		t.Errorf("flush.ms %q, compression.type %q", r.setting("t", "flush.ms"), r.setting("t", "compression.type"))
	}
	r.setDestination("retention.ms", "1")
	r.cycles(3)
	if r.setting("t", "retention.ms") != "1" {
		t.Error("a STOPPED topic was touched")
	}
}

// An exclusion stops a topic like a command: it stays STOPPED, and that is told, until a command starts it.
func TestAnExcludedTopicStaysStopped(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t.*")})
	r.topic("t1", 1, 1)
	r.run()
	r.eventually("the topic is mirrored", func() bool { return !r.record("t1").DestinationID.IsZero() })
	r.alter(func(m *statestore.Mirror) { m.TopicsExclude = []string{"t1"} })
	r.eventually("it is stopped", func() bool {
		return r.record("t1").Wish == mirror.Stopped && !r.record("t1").ByCommand && r.record("t1").Promoted
	})
	r.alter(func(m *statestore.Mirror) { m.TopicsExclude = nil })
	r.eventually("it is told", func() bool { return strings.Contains(r.status().Notes["t1"], "stays STOPPED") })
	r.cycles(2)
	if r.record("t1").Wish != mirror.Stopped {
		t.Error("a topic that was promoted came back")
	}
	r.wish("t1", start)
	r.eventually("nothing is left to be told", func() bool { return r.status().Notes["t1"] == "" })
	r.wish("t1", stop)
	r.eventually("stopped by command", func() bool { return r.record("t1").Promoted })
	r.cycles(3)
	if note := r.status().Notes["t1"]; r.record("t1").Wish != mirror.Stopped || note != "" {
		t.Errorf("a topic that was stopped by command: %+v, %q", r.record("t1"), note)
	}
}

// What happens to very many topics at once has one line of log, not one each.
func TestManyTopicsAtOnceAreToldInALine(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t.*")})
	for i := range 2 * linesAtOnce {
		r.topic(fmt.Sprint("t", i), 1, 1)
	}
	r.run()
	r.eventually("the topics are mirrored", func() bool { return !r.record("t0").DestinationID.IsZero() })
	r.alter(func(m *statestore.Mirror) { m.TopicsExclude = []string{"t1.*"} })
	r.eventually("some are stopped", func() bool { return r.record("t1").Promoted && r.record("t19").Promoted })
	for _, event := range []string{"topic created", "topic excluded"} {
		if n := r.log.lines(event); n != 1 {
			t.Errorf("%d lines say %q of many topics", n, event)
		}
	}
	r.topic("t2x", 1, 1)
	r.eventually("a line of its own", func() bool { return r.log.lines("topic=t2x") == 1 })
}

// A source that does not answer holds up only what needs it: a promotion is finished from what is recorded.
func TestPromotionIsFinishedWithTheSourceDead(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t")})
	r.cfg.CallTimeout = time.Hour // waiting for the source would fail the test
	r.topic("t", 1, 100, "retention.ms", "600000")
	r.commit(r.s, "g", "t", 0, 60)
	r.run()
	r.eventually("the topic is mirrored", func() bool { return !r.record("t").DestinationID.IsZero() })
	r.write(r.fd, "t", 1, 50)
	r.eventually("the group is clamped", func() bool { return r.committed(r.d, "g", "t", 0) == 50 })
	r.write(r.fd, "t", 1, 50)
	r.eventually("the group is level", func() bool { return r.committed(r.d, "g", "t", 0) == 60 })
	r.fs.Close()
	r.wish("t", stop)
	r.eventually("promoted", func() bool { return r.record("t").Promoted })
	if r.setting("t", "retention.ms") != "600000" || r.committed(r.d, "g", "t", 0) != 60 {
		t.Errorf("retention.ms %q, committed %d", r.setting("t", "retention.ms"), r.committed(r.d, "g", "t", 0))
	}
}

func TestADeadSourceIsReported(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t")})
	r.cfg.CallTimeout = time.Second
	r.run()
	r.eventually("the source is up", func() bool { return r.status().SourceUp })
	r.fs.Close()
	r.eventually("the source is reported", func() bool { s := r.status(); return !s.SourceUp && s.SourceError != "" })
	r.eventually("it is counted", func() bool {
		s := r.status()
		return s.Errors[StepSource].Message != ""
	})
}

func TestWithoutALeaseNothingIsChanged(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t")})
	r.topic("t", 1, 1)
	r.deps.Lease = func() error { return mirror.Errorf(mirror.Fenced, "the lease has ended") }
	before := r.state.count()
	r.run()
	r.eventually("some cycles", func() bool { return r.status().SourceUp })
	<-time.After(500 * time.Millisecond)
	if r.fd.TopicInfo("t") != nil || r.state.count() != before {
		t.Error("something was changed without a lease")
	}
}

// swap puts another cluster behind the source's address.
func (r *rig) swap(c *kafka.Cluster) { r.source.Store(c) }

func (r *rig) setDestination(key, value string) {
	r.t.Helper()
	if _, err := r.d.AlterTopicConfigs(r.t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, "t"); err != nil {
		r.t.Fatal(err)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A compacted topic is seeded under "delete", for as long as that takes; once no partition needs it, that is drift.
func TestR13_ThePolicyThatSeedingNeedsStaysUntilItIsOver(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t")})
	r.topic("t", 2, 10, "cleanup.policy", "compact")
	r.trim(r.s, 0, 8)
	r.run()
	r.eventually("the topic is mirrored", func() bool { return r.setting("t", "cleanup.policy") == "compact" })
	stays := func(when string) {
		t.Helper()
		r.cycles(4)
		if policy := r.setting("t", "cleanup.policy"); policy != "delete" {
			t.Errorf("%s: cleanup.policy=%s", when, policy)
		}
	}
	r.setDestination("cleanup.policy", "delete")
	stays("nothing is written yet")
	r.write(r.fd, "t", 2, 8)
	stays("the fillers are not removed yet")
	r.trim(r.d, 0, 8)
	r.eventually("the policy is back", func() bool { return r.setting("t", "cleanup.policy") == "compact" })
	r.trim(r.s, 1, 10)
	r.setDestination("cleanup.policy", "delete")
	stays("the other partition is seeded")
	r.write(r.fd, "t", 2, 2)
	r.trim(r.d, 1, 10)
	r.eventually("the policy is back", func() bool { return r.setting("t", "cleanup.policy") == "compact" })
}
