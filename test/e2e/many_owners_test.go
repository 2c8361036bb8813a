package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"mirrord/internal/statestore"
)

// Whoever owns the partitions is killed: another instance that shares them, or one that only starts then, goes on with
// all of them in time.
func TestManyPartitionsChangeHands(t *testing.T) {
	t.Parallel()
	const session = 4 * time.Second
	c := NewCrowd(t, 30)
	s := c.Proxied("t[0-9]+")
	s.Extra = []string{"session_timeout: 4s"}
	a, b := NewDaemon(t, s), NewDaemon(t, s)
	a.Start()
	b.Start()
	c.AwaitAll(a, "MIRRORING", 3)
	joined(t, a, b)
	t.Logf("memory of two daemons with %d partitions: %.0f and %.0f MiB", c.Size(), resident(a), resident(b))
	for round, kill := range []func(){b.Kill, func() { b.Launch(); a.Kill() }} {
		before := requests(c.D)
		began := time.Now()
		kill()
		c.Write(t, 3+round, 1)
		Eventually(t, c.Limit, func() error { return c.D.HasEnds(int64(4+round), c.Topics...) })
		took := time.Since(began)
		t.Logf("taken over in %v: %s", took, inWords(less(requests(c.D), before)))
		if limit := Unhurried(session + 5*time.Second); took > limit {
			t.Errorf("taken over in %v, allowed are %v", took, limit)
		}
	}
	c.AwaitAll(b, "MIRRORING", 5)
	Identical(t, c.S, c.D, c.Topics[:3]...)
	SoundState(t, c.D)
}

// resident is the memory of an instance in MiB.
func resident(d *Daemon) float64 {
	return d.Metric("process_resident_memory_bytes") / (1 << 20)
}

// Topics by the hundred are chosen by patterns: those that start leaves out stay out, those that an edit excludes are
// stopped as by command, and all of it touches no other topic and is told in few lines.
func TestManyTopicsByPattern(t *testing.T) {
	t.Parallel()
	c := NewCrowd(t, 300)
	m := NewDaemon(t, Settings{Destination: c.D.Bootstrap()})
	m.Start()
	lines := m.logLines("")
	m.Do("create", "--mirror", "east", "--mirror-config", propertiesFile(t, "bootstrap.servers="+c.S.Bootstrap()))
	m.Do("start", "--mirror", "east", "--topics", "t[0-9]+", "--exclude", "t.*9")
	omitted, rest := c.split(func(topic string) bool { return strings.HasSuffix(topic, "9") })
	c.Topics = rest
	c.AwaitAll(m, "MIRRORING", 3)
	listed, err := c.D.Admin().ListTopics(context.Background())
	must(t, err)
	for _, topic := range omitted {
		if listed.Has(topic) {
			t.Errorf("%s was left out and is there", topic)
		}
	}
	excluded, others := c.split(func(topic string) bool { return strings.HasPrefix(topic, "t1") })
	written, err := c.D.Logs(context.Background(), statestore.StateTopic)
	must(t, err)
	began := time.Now()
	m.Do("alter", "--mirror", "east", "--mirror-config", propertiesFile(t, "topics.exclude=__.*,t1.*"))
	Eventually(t, c.Limit, func() error { return c.wantStates(m, "MIRRORING", "STOPPED", excluded...) })
	t.Logf("%d topics are stopped %v after an edit that excludes them", len(excluded), time.Since(began))
	must(t, writable(c.D, excluded[0], c.Each))
	if r := m.Run("start", "--mirror", "east", "--topics", excluded[0]); r.Code != 1 || !strings.Contains(r.Err, "topics_exclude") {
		t.Errorf("start of an excluded topic: exit code %d, %s", r.Code, r.Err)
	}
	c.Topics = others
	c.Write(t, 3, 1)
	Eventually(t, c.Limit, func() error { return c.D.HasEnds(4, others...) })
	for _, r := range StateLog(t, c.D) {
		if s, ok := r.Record.(statestore.PartitionState); ok && r.Offset >= written[r.Shard].End && slices.Contains(others, s.Topic) {
			t.Fatalf("%s-%d was not to be touched and is %s", s.Topic, s.Index, s.State)
		}
	}
	if n := m.logLines("") - lines; n > 250 {
		t.Errorf("%d lines of log", n)
	}
}

// split divides the topics.
func (c Crowd) split(of func(string) bool) (yes, no []string) {
	for _, topic := range c.Topics {
		if of(topic) {
			yes = append(yes, topic)
		} else {
			no = append(no, topic)
		}
	}
	return yes, no
}
