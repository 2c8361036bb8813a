package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// Settings follow the source: what is set there is set here, drift is put right, what the source takes back goes, and
// what is not mirrord's stays (SPEC §9, §8.8).
func TestSettingsFollowTheSource(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	s := p.Mirror(".*")
	m := NewDaemon(t, s)
	m.Start()
	for name, rule := range map[string]func(*testing.T, Pair, *Daemon){
		"copied and removed": settingsCopied, "drift": settingsDrift, "not ours": settingsNotOurs, "excluded": settingsExcluded,
		"forced until stopped": settingsForced, "largest batch": settingsLargest, "paused": settingsPaused,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule(t, p, m.In(t))
		})
	}
}

func settingsCopied(t *testing.T, p Pair, m *Daemon) {
	const topic = "copied"
	p.S.Topic(t, topic, 1, "segment.ms", "7200000")
	want := func(pairs ...string) {
		t.Helper()
		Eventually(t, soon, func() error { return p.D.wantSettings(topic, pairs...) })
	}
	want("segment.ms", "7200000")
	p.S.Set(t, topic, "segment.ms", "3600000", "delete.retention.ms", "5000")
	want("segment.ms", "3600000", "delete.retention.ms", "5000")
	p.S.Set(t, topic, "segment.ms", "", "delete.retention.ms", "")
	want("segment.ms", "", "delete.retention.ms", "")
}

func settingsDrift(t *testing.T, p Pair, m *Daemon) {
	const topic = "drift"
	p.S.Topic(t, topic, 1, "segment.ms", "7200000")
	Eventually(t, soon, func() error { return p.D.wantSettings(topic, "segment.ms", "7200000") })
	p.D.Set(t, topic, "segment.ms", "1000000")
	Eventually(t, soon, func() error { return p.D.wantSettings(topic, "segment.ms", "7200000") })
	p.D.Set(t, topic, "segment.ms", "", "retention.ms", "1000")
	Eventually(t, soon, func() error {
		return p.D.wantSettings(topic, "segment.ms", "7200000", "retention.ms", "-1")
	})
	must(t, m.wantLog("settings changed", "topic="+topic))
}

// An operator's own setting stays, whatever changes beside it, and after the topic is stopped.
func settingsNotOurs(t *testing.T, p Pair, m *Daemon) {
	const topic = "own"
	p.S.Topic(t, topic, 1)
	Eventually(t, soon, func() error { return p.D.wantSettings(topic, "compression.type", "producer") })
	p.D.Set(t, topic, "flush.ms", "1234")
	p.S.Set(t, topic, "segment.ms", "7200000")
	Eventually(t, soon, func() error { return p.D.wantSettings(topic, "segment.ms", "7200000", "flush.ms", "1234") })
	p.S.Set(t, topic, "segment.ms", "")
	Eventually(t, soon, func() error { return p.D.wantSettings(topic, "segment.ms", "", "flush.ms", "1234") })
	m.Do("stop", "--mirror", "east", "--topics", topic)
	Eventually(t, soon, func() error { return p.D.wantSettings(topic, "compression.type", "", "flush.ms", "1234") })
}

func settingsExcluded(t *testing.T, p Pair, m *Daemon) {
	const topic = "excluded"
	p.S.Topic(t, topic, 1, "min.insync.replicas", "1", "unclean.leader.election.enable", "true",
		"leader.replication.throttled.replicas", "*", "segment.ms", "7200000")
	Eventually(t, soon, func() error {
		return p.D.wantSettings(topic, "segment.ms", "7200000", "min.insync.replicas", "", "unclean.leader.election.enable", "",
			"leader.replication.throttled.replicas", "")
	})
	p.D.Set(t, topic, "unclean.leader.election.enable", "false")
	p.S.Set(t, topic, "segment.ms", "3600000")
	Eventually(t, soon, func() error {
		return p.D.wantSettings(topic, "segment.ms", "3600000", "unclean.leader.election.enable", "false")
	})
}

// What a mirror topic must have wins over the source's settings and over the excludes; at STOPPED the source's come back.
func settingsForced(t *testing.T, p Pair, m *Daemon) {
	const topic = "forced"
	p.S.Topic(t, topic, 1, "retention.ms", "86400000", "retention.bytes", "1000000000", "compression.type", "zstd",
		"message.timestamp.type", "LogAppendTime", "segment.ms", "7200000")
	p.S.Send(t, nil, Numbered(topic, 0, 0, 10)...)
	const most = "9223372036854775807"
	Eventually(t, soon, func() error {
		return p.D.wantSettings(topic, "retention.ms", "-1", "retention.bytes", "-1", "compression.type", "producer",
			"message.timestamp.type", "CreateTime", "message.timestamp.before.max.ms", most, "message.timestamp.after.max.ms", most)
	})
	AwaitLevel(t, p.S, p.D, soon, topic)
	Identical(t, p.S, p.D, topic)
	p.S.Set(t, topic, "retention.ms", "172800000") // a change that shows only after the stop
	Eventually(t, soon, func() error { return m.wantSource(topic, "retention.ms", "172800000") })
	m.Do("stop", "--mirror", "east", "--topics", topic)
	Eventually(t, soon, func() error {
		return p.D.wantSettings(topic, "retention.ms", "172800000", "retention.bytes", "1000000000", "compression.type", "zstd",
			"message.timestamp.type", "LogAppendTime", "segment.ms", "7200000", "message.timestamp.before.max.ms", "", "message.timestamp.after.max.ms", "")
	})
	p.S.Set(t, topic, "retention.ms", "1")
	m.refreshed(2)
	must(t, p.D.wantSettings(topic, "retention.ms", "172800000"))
}

// A source that takes larger batches by its broker's default makes the copy take them too.
func settingsLargest(t *testing.T, p Pair, m *Daemon) {
	const topic = "largest"
	p.S.Topic(t, topic, 1, "max.message.bytes", "3000000")
	Eventually(t, soon, func() error { return p.D.wantSettings(topic, "max.message.bytes", "3000000") })
	p.S.Set(t, topic, "max.message.bytes", "")
	Eventually(t, soon, func() error {
		set, err := p.D.Explicit(context.Background(), topic)
		if v, ok := set["max.message.bytes"]; err == nil && ok && v == "3000000" {
			err = fmt.Errorf("the limit that the source gave up is still there")
		}
		return err
	})
}

// While PAUSED nothing is changed; resume brings what was missed.
func settingsPaused(t *testing.T, p Pair, m *Daemon) {
	const topic = "paused"
	p.S.Topic(t, topic, 1, "segment.ms", "7200000")
	Eventually(t, soon, func() error { return p.D.wantSettings(topic, "segment.ms", "7200000") })
	m.Do("pause", "--mirror", "east", "--topics", topic)
	p.S.Set(t, topic, "segment.ms", "3600000")
	m.refreshed(2)
	must(t, p.D.wantSettings(topic, "segment.ms", "7200000"))
	m.Do("resume", "--mirror", "east", "--topics", topic)
	Eventually(t, soon, func() error { return p.D.wantSettings(topic, "segment.ms", "3600000") })
}

// A restart forgets nothing: what mirrord had set is still its own, though the topic list does not change.
func TestSettingsAfterARestart(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 1, "segment.ms", "7200000")
	m := NewDaemon(t, p.Mirror("t"))
	m.Start()
	Eventually(t, soon, func() error { return p.D.wantSettings("t", "segment.ms", "7200000") })
	m.Stop()
	p.S.Set(t, "t", "segment.ms", "", "delete.retention.ms", "5000")
	m.Start()
	Eventually(t, soon, func() error { return p.D.wantSettings("t", "segment.ms", "", "delete.retention.ms", "5000") })
}

// The oldest destination that is served knows fewer settings: what it does not know is left out and told, what it knows by
// an older name it gets by that, and no limit of it is a reason not to mirror the topic (SPEC §8.8).
func TestAnOlderDestinationHasFewerSettings(t *testing.T) {
	t.Parallel()
	p := Pair{SharedPair(t).S, StartCluster(t, Options{Version: "3.3.2"})}
	p.S.Topic(t, "t", 1, "compression.gzip.level", "5", "segment.ms", "7200000", "min.insync.replicas", "3", "message.timestamp.after.max.ms", "60000")
	p.S.Send(t, nil, Numbered("t", 0, 0, 10)...)
	s := p.Mirror("t")
	s.MirrorExtra = []string{"topic_properties_exclude: []"}
	m := NewDaemon(t, s)
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "t")
	Identical(t, p.S, p.D, "t")
	Eventually(t, soon, func() error {
		return p.D.wantSettings("t", "segment.ms", "7200000", "min.insync.replicas", "1", "compression.gzip.level", "",
			"message.timestamp.difference.max.ms", "9223372036854775807", "message.timestamp.after.max.ms", "")
	})
	Eventually(t, soon, func() error {
		return errors.Join(m.wantTold("settings left out", "compression.gzip.level"), m.wantTold("min.insync.replicas", "replicas", "t"))
	})
	if n := m.Metric("mirrord_refresh_errors_total", `step="configs"`); n != 0 {
		t.Errorf("%v failures of the settings", n)
	}
	m.Do("stop", "--mirror", "east", "--topics", "t")
	must(t, p.D.wantSettings("t", "segment.ms", "7200000", "message.timestamp.difference.max.ms", ""))
	p.D.Send(t, nil, Numbered("t", 0, 10, 1)...)
}
