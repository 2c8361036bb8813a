package e2e

import (
	"context"
	"os"
	"path/filepath"
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

// Topics by the hundred are chosen by patterns, of the definition and of start: those that start leaves out stay out, those
// that an edit excludes are stopped as by command, and come back only by one. None of it
// touches any other topic, and it is told in few lines.
func TestManyTopicsByPattern(t *testing.T) {
	t.Parallel()
	c := NewCrowd(t, 300)
	m := NewDaemon(t, Settings{Destination: c.D.Bootstrap()})
	m.Start()
	lines := m.logLines("")
	m.Do("create", "--mirror", "east", "--mirror-config", propertiesFile(t, "bootstrap.servers="+c.S.Bootstrap(), "topics.include=t[0-4].*"))
	m.Do("start", "--mirror", "east", "--topics", "t[5-9].*", "--exclude", "t[89].*")
	omitted := c.having("t8", "t9")
	discovered, commanded, others := c.having("t1"), c.having("t5"), c.having("t0", "t2", "t3", "t4", "t6", "t7")
	c.Topics = slices.Concat(discovered, commanded, others)
	c.AwaitAll(m, "MIRRORING", 3)
	listed, err := c.D.Admin().ListTopics(context.Background())
	must(t, err)
	for _, topic := range omitted {
		if listed.Has(topic) {
			t.Errorf("%s was left out and is there", topic)
		}
	}
	load := StartLoad(t, c.S, 500, c.Each, others[:5]...)
	written, err := c.D.Logs(context.Background(), statestore.StateTopic)
	must(t, err)
	c.exclude(m, "STOPPED", slices.Concat(discovered, commanded), "topics.exclude=__.*,t1.*,t5.*")
	must(t, writable(c.D, commanded[0], c.Each))
	if r := m.Run("start", "--mirror", "east", "--topics", commanded[0]); r.Code != 1 || !strings.Contains(r.Err, "topics_exclude") {
		t.Errorf("start of an excluded topic: exit code %d, %s", r.Code, r.Err)
	}
	c.exclude(m, "STOPPED", slices.Concat(discovered, commanded), "topics.exclude=__.*")
	m.Do("start", "--mirror", "east", "--topics", "t1.*")
	must(t, c.wantStates(m, "MIRRORING", "STOPPED", commanded...))
	load.Stop(t)
	AwaitLevel(t, c.S, c.D, c.Limit, others[:5]...)
	Identical(t, c.S, c.D, slices.Concat(others[:5], discovered[:5])...)
	for _, r := range StateLog(t, c.D) {
		s, ok := r.Record.(statestore.PartitionState)
		if ok && r.Offset >= written[r.Shard].End && slices.Contains(others, s.Topic) {
			t.Fatalf("%s-%d was not to be touched and is %s", s.Topic, s.Index, s.State)
		}
	}
	if n := m.logLines("") - lines; n > 300 {
		t.Errorf("%d lines of log", n)
	}
}

// exclude edits the mirror and waits until the topics are in a state, and all others are mirrored.
func (c Crowd) exclude(m *Daemon, state string, topics []string, setting string) {
	m.t.Helper()
	began := time.Now()
	file := filepath.Join(m.dir, "edit.properties")
	must(m.t, os.WriteFile(file, []byte(setting+"\n"), 0o600))
	m.Do("alter", "--mirror", "east", "--mirror-config", file)
	Eventually(m.t, c.Limit, func() error { return c.wantStates(m, "MIRRORING", state, topics...) })
	m.t.Logf("%d topics are %s %v after the edit %s", len(topics), state, time.Since(began), setting)
}

// having are the topics that begin with one of the texts.
func (c Crowd) having(prefixes ...string) (topics []string) {
	for _, topic := range c.Topics {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(topic, p) }) {
			topics = append(topics, topic)
		}
	}
	return topics
}
