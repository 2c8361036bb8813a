package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Topics follow the source: what appears, grows, goes and comes back there, and what happens to the copy (SPEC §9). All
// parts share one mirror, so each also shows that what befalls one topic leaves the others alone.
func TestTopicsFollowTheSource(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	s := p.Mirror(".*")
	s.MirrorExtra = []string{`topics_exclude: ["__.*", "never-.*"]`}
	m := NewDaemon(t, s)
	p.S.Topic(t, "never-this", 1)
	p.S.Topic(t, "bystander", 1)
	p.S.Send(t, nil, Numbered("bystander", 0, 0, 10)...)
	m.Start()
	t.Run("rules", func(t *testing.T) {
		for name, rule := range map[string]func(*testing.T, Pair, *Daemon){
			"created with settings before data": topicCreated, "grown": topicGrown, "source deleted": topicSourceDeleted,
			"source recreated": topicSourceRecreated, "destination deleted": topicDestinationDeleted,
			"destination recreated": topicDestinationRecreated, "destination larger": topicDestinationLarger,
			"refused": topicRefused, "not ours": topicNotOurs,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				rule(t, p, m.In(t))
			})
		}
	})
	p.S.Send(t, nil, Numbered("bystander", 0, 10, 10)...)
	AwaitLevel(t, p.S, p.D, soon, "bystander")
	Identical(t, p.S, p.D, "bystander")
	if n, err := p.D.Partitions(context.Background(), "never-this"); n > 0 || err != nil {
		t.Errorf("an excluded topic has %d partitions at the destination (%v)", n, err)
	}
}

// A new topic has its settings from the first moment: a copy of last year's records under a short default retention
// would be gone at once.
func topicCreated(t *testing.T, p Pair, m *Daemon) {
	const topic = "created"
	p.S.Topic(t, topic, 2, "cleanup.policy", "compact", "segment.ms", "3600000", "retention.ms", "86400000")
	old := Numbered(topic, 0, 0, 100)
	for _, r := range old {
		r.Timestamp = time.Now().AddDate(-1, 0, 0)
	}
	p.S.Send(t, nil, old...)
	Eventually(t, soon, func() error {
		return p.D.wantSettings(topic, "cleanup.policy", "compact", "segment.ms", "3600000", "retention.ms", "-1")
	})
	AwaitLevel(t, p.S, p.D, soon, topic)
	Identical(t, p.S, p.D, topic)
	must(t, m.wantLog("topic created", "topic="+topic))
}

// Partitions that the source gains are added at the destination and mirrored from offset 0, what was written before they
// were noticed included.
func topicGrown(t *testing.T, p Pair, m *Daemon) {
	const topic = "grown"
	p.S.Topic(t, topic, 1)
	p.S.Send(t, nil, Numbered(topic, 0, 0, 10)...)
	AwaitLevel(t, p.S, p.D, soon, topic)
	p.S.Grow(t, topic, 3)
	Eventually(t, soon, func() error { // the producer has to learn of the partition
		cl := p.S.Producer(t)
		defer cl.Close()
		return cl.ProduceSync(context.Background(), Numbered(topic, 2, 0, 10)...).FirstErr()
	})
	AwaitLevel(t, p.S, p.D, soon, topic)
	Identical(t, p.S, p.D, topic)
	m.Await("MIRRORING", soon, topic)
}

// A topic that is deleted at the source is not deleted here; stop makes it an ordinary topic.
func topicSourceDeleted(t *testing.T, p Pair, m *Daemon) {
	const topic = "source-deleted"
	p.S.Topic(t, topic, 1)
	p.S.Send(t, nil, Numbered(topic, 0, 0, 10)...)
	AwaitLevel(t, p.S, p.D, soon, topic)
	p.S.DeleteTopic(t, topic)
	Eventually(t, soon, func() error { return m.wantState(topic, 0, "FAILED", "was deleted") })
	must(t, p.D.wantEnd(topic, 0, 10))
	m.Do("stop", "--mirror", "east", "--topics", topic)
	must(t, m.wantState(topic, 0, "STOPPED", ""))
	must(t, p.D.wantEnd(topic, 0, 10))
}

// A topic of the same name is another topic: its records must never be appended to the copy of the old one. recover
// alone does not overwrite the copy, which has data; with --reseed, whose consent it is, the new one is copied.
func topicSourceRecreated(t *testing.T, p Pair, m *Daemon) {
	const topic = "source-recreated"
	p.S.Topic(t, topic, 1)
	p.S.Send(t, nil, Numbered(topic, 0, 0, 10)...)
	AwaitLevel(t, p.S, p.D, soon, topic)
	m.Do("pause", "--mirror", "east", "--topics", topic)
	p.S.DeleteTopic(t, topic)
	p.S.Topic(t, topic, 1)
	p.S.Send(t, nil, Numbered(topic, 0, 100, 20)...)
	m.Do("resume", "--mirror", "east", "--topics", topic, "--no-wait")
	Eventually(t, soon, func() error { return m.wantState(topic, 0, "FAILED", "created again") })
	must(t, p.D.wantEnd(topic, 0, 10))
	id := p.D.TopicID(t, topic)
	m.Do("recover", "--mirror", "east", "--topics", topic, "--reseed")
	AwaitLevel(t, p.S, p.D, soon, topic)
	Identical(t, p.S, p.D, topic)
	if p.D.TopicID(t, topic) == id {
		t.Error("the topic was not recreated")
	}
}

func topicDestinationDeleted(t *testing.T, p Pair, m *Daemon) {
	const topic = "destination-deleted"
	p.S.Topic(t, topic, 2)
	p.S.Send(t, nil, Numbered(topic, 0, 0, 10)...)
	AwaitLevel(t, p.S, p.D, soon, topic)
	p.D.DeleteTopic(t, topic)
	Eventually(t, soon, func() error { return m.wantState(topic, 0, "FAILED", "deleted") })
	if n, _ := p.D.Partitions(context.Background(), topic); n > 0 {
		t.Error("the topic came back by itself")
	}
	wantNothingOf(t, m, topic)
	m.Do("recover", "--mirror", "east", "--topics", topic)
	AwaitLevel(t, p.S, p.D, soon, topic)
	Identical(t, p.S, p.D, topic)
}

// wantNothingOf: nothing is claimed about how level a topic is that is gone.
func wantNothingOf(t *testing.T, m *Daemon, topic string) {
	t.Helper()
	row := awaitRow(t, m, topic, 0, soon, func(r Partition) bool { return r.DestinationOffset == -1 })
	want(t, "lag", row.Lag, -1)
	want(t, "lagSeconds", row.LagSeconds, -1)
	Eventually(t, soon, func() error {
		var metrics strings.Builder
		err := m.get("/metrics", &metrics)
		for line := range strings.Lines(metrics.String()) {
			if strings.HasPrefix(line, "mirrord_partition_lag_") && strings.Contains(line, `topic="`+topic+`"`) {
				err = fmt.Errorf("a metric tells a lag: %s", line)
			}
		}
		return err
	})
}

// Somebody recreates the copy and writes into it: nothing is appended to it, and recover finds that it differs.
func topicDestinationRecreated(t *testing.T, p Pair, m *Daemon) {
	const topic = "destination-recreated"
	p.S.Topic(t, topic, 1)
	p.S.Send(t, nil, Numbered(topic, 0, 0, 10)...)
	AwaitLevel(t, p.S, p.D, soon, topic)
	p.D.DeleteTopic(t, topic)
	p.D.Topic(t, topic, 1)
	p.D.Send(t, nil, Numbered(topic, 0, 500, 3)...)
	p.S.Send(t, nil, Numbered(topic, 0, 10, 5)...)
	Eventually(t, soon, func() error { return m.wantState(topic, 0, "FAILED", "") })
	must(t, p.D.wantEnd(topic, 0, 3))
	wantNothingOf(t, m, topic)
	if r := m.Run("recover", "--mirror", "east", "--topics", topic); r.Code != 1 {
		t.Errorf("recover of a topic that differs ends with %d: %s%s", r.Code, r.Out, r.Err)
	}
	Eventually(t, soon, func() error { return m.wantState(topic, 0, "FAILED", "3") })
	must(t, p.D.wantEnd(topic, 0, 3))
}

// A topic that exists at the destination with more partitions cannot become a copy; on command those that the source has
// are mirrored, and the others told, by verify as no difference. One that is empty with fewer is grown and taken over.
func topicDestinationLarger(t *testing.T, p Pair, m *Daemon) {
	p.D.Topic(t, "larger", 3)
	p.D.Topic(t, "smaller", 1)
	p.S.Topic(t, "larger", 2)
	p.S.Topic(t, "smaller", 3)
	p.S.Send(t, nil, Numbered("smaller", 2, 0, 10)...)
	p.S.Send(t, nil, Numbered("larger", 1, 0, 10)...)
	Eventually(t, soon, func() error { return m.wantState("larger", 0, "FAILED", "recover mirrors the first 2") })
	AwaitLevel(t, p.S, p.D, soon, "smaller")
	Identical(t, p.S, p.D, "smaller")
	m.Do("recover", "--mirror", "east", "--topics", "larger")
	Eventually(t, soon, func() error { return m.wantState("larger", 1, "MIRRORING", "the others are not mirrored") })
	Eventually(t, soon, func() error { return p.D.wantEnd("larger", 1, 10) })
	says(t, "verify", m.Do("verify", "--mirror", "east", "--topics", "larger", "--full").Out, "the source has no such partition")
}

// What the destination cannot do is told, with the topic, wherever somebody may look, and tried again. A stop does not wait
// for it, and says that there is nothing.
func topicRefused(t *testing.T, p Pair, m *Daemon) {
	// Names that differ in '.' and '_' only are refused by every broker.
	p.D.Topic(t, "refused_by.name", 1)
	p.S.Topic(t, "refused.by_name", 1)
	p.S.Send(t, nil, Numbered("refused.by_name", 0, 0, 5)...)
	Eventually(t, soon, func() error {
		for _, row := range m.Describe() {
			if row.Topic == "refused.by_name" && row.ErrorMessage != "" {
				return nil
			}
		}
		return fmt.Errorf("describe says nothing about a topic that cannot be created")
	})
	Eventually(t, soon, func() error {
		return errors.Join(m.wantLog("refused.by_name", "collides"), m.wantEvent("topic waits", "refused.by_name", "collides"))
	})
	if m.Metric("mirrord_refresh_errors_total", `mirror="east"`, `step="topics"`) == 0 {
		t.Error("the refusal is not counted")
	}
	p.D.Topic(t, "stopped_by.name", 1)
	p.S.Topic(t, "stopped.by_name", 1)
	Eventually(t, soon, func() error { return m.wantEvent("topic waits", "stopped.by_name", "collides") })
	says(t, "stop", m.Do("stop", "--mirror", "east", "--topics", "stopped.by_name", "--timeout", "10s").Out, "before anything of topic stopped.by_name was mirrored", "collides")
	row := awaitRow(t, m, "stopped.by_name", -1, soon, func(r Partition) bool { return r.State == "STOPPED" })
	says(t, "describe", row.ErrorMessage, "collides")
	p.D.DeleteTopic(t, "refused_by.name")
	AwaitLevel(t, p.S, p.D, soon, "refused.by_name")
}

// A topic of the destination that the source does not have is nobody's business.
func topicNotOurs(t *testing.T, p Pair, m *Daemon) {
	p.D.Topic(t, "not-ours", 1, "retention.ms", "12345")
	p.D.Send(t, nil, Numbered("not-ours", 0, 0, 3)...)
	m.refreshed(2)
	must(t, p.D.wantSettings("not-ours", "retention.ms", "12345", "compression.type", ""))
	must(t, p.D.wantEnd("not-ours", 0, 3))
	for _, row := range m.Describe() {
		if row.Topic == "not-ours" {
			t.Errorf("describe lists %+v", row)
		}
	}
}

// An edit that newly excludes a topic stops it, like by command: taking the exclusion back leaves it STOPPED and writable,
// and says so; start takes it up again.
func TestEditedExclusionStopsTopics(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "keep", 1)
	p.S.Topic(t, "drop", 1)
	p.S.Send(t, nil, Numbered("drop", 0, 0, 10)...)
	s := p.Mirror(".*")
	m := NewDaemon(t, s)
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "keep", "drop")
	s.MirrorExtra = []string{`topics_exclude: ["__.*", drop]`}
	m.Write(s)
	m.Reload()
	m.Await("STOPPED", soon, "drop")
	p.S.Send(t, nil, Numbered("drop", 0, 10, 5)...)
	p.S.Send(t, nil, Numbered("keep", 0, 0, 5)...)
	AwaitLevel(t, p.S, p.D, soon, "keep")
	must(t, p.D.wantEnd("drop", 0, 10))
	must(t, m.wantState("keep", 0, "MIRRORING", ""))
	s.MirrorExtra = nil
	m.Write(s)
	m.Reload()
	Eventually(t, soon, func() error {
		if r := m.Do("describe"); !strings.Contains(r.Err, "drop is selected again after it was excluded, and stays STOPPED") {
			return fmt.Errorf("describe says %q", r.Err)
		}
		return nil
	})
	m.refreshed(2)
	must(t, m.wantState("drop", 0, "STOPPED", ""))
	must(t, p.D.wantEnd("drop", 0, 10))
	m.Do("start", "--mirror", "east", "--topics", "drop")
	AwaitLevel(t, p.S, p.D, soon, "drop")
	Identical(t, p.S, p.D, "drop")
}

// More copies than the destination has brokers are refused, told with the topic, and tried again: an edit is enough.
func TestReplicationFactorBeyondTheDestination(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 1)
	p.S.Send(t, nil, Numbered("t", 0, 0, 10)...)
	s := p.Mirror("t")
	s.MirrorExtra = []string{"replication_factor: 3"}
	m := NewDaemon(t, s)
	m.Start()
	Eventually(t, soon, func() error {
		all := m.Describe()
		if len(all) == 1 && strings.Contains(strings.ToLower(all[0].ErrorMessage), "replication factor") {
			return nil
		}
		return fmt.Errorf("describe says %+v", all)
	})
	if n := m.Metric("mirrord_refresh_errors_total", `step="topics"`); n == 0 {
		t.Error("the refusal is not counted")
	}
	s.MirrorExtra = nil
	m.Write(s)
	m.Reload()
	AwaitLevel(t, p.S, p.D, soon, "t")
	must(t, m.wantState("t", 0, "MIRRORING", ""))
}
