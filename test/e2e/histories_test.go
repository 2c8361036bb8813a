package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Histories of a source that a copy must not swallow: truncated, elected out of the past, recreated, restored.

// CopiesOn creates a topic of one partition on the nodes named, the first being its leader.
func (c *Cluster) CopiesOn(t testing.TB, topic string, nodes []int32, settings ...string) {
	t.Helper()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, -1, -1
	rt.ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: nodes}}
	for i := 0; i+1 < len(settings); i += 2 {
		cfg := kmsg.NewCreateTopicsRequestTopicConfig()
		cfg.Name, cfg.Value = settings[i], &settings[i+1]
		rt.Configs = append(rt.Configs, cfg)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis, req.Topics = 20_000, append(req.Topics, rt)
	resp, err := req.RequestWith(context.Background(), c.cl)
	must(t, err)
	if r := resp.Topics[0]; r.ErrorCode != 0 {
		t.Fatalf("create %s: error %d %v", topic, r.ErrorCode, r.ErrorMessage)
	}
}

// failed waits until partition 0 of a topic is FAILED, for good, with a message that has all the words.
func (d *Daemon) failed(topic string, words ...any) Partition {
	d.t.Helper()
	d.Await("FAILED", 40*time.Second, topic)
	for _, p := range d.Describe() {
		if p.Topic != topic {
			continue
		}
		if p.RetryAttempt != -1 {
			d.t.Errorf("%s is to be retried: %+v", topic, p)
		}
		for _, w := range words {
			if !strings.Contains(p.ErrorMessage, fmt.Sprint(w)) {
				d.t.Errorf("%s: message does not mention %v: %s", topic, w, p.ErrorMessage)
			}
		}
		return p
	}
	return Partition{}
}

// A leader elected out of the past shortens the source below the copy, then the source grows over it again. Equal ends
// are no evidence: the partition fails, naming where the histories part, and nothing of the new history is appended.
func TestR7_UncleanElectionAtTheSource(t *testing.T) {
	t.Parallel()
	s, d := StartCluster(t, Options{Nodes: 3}), StartCluster(t, Options{})
	p := Pair{s, d}
	s.CopiesOn(t, "t", []int32{1, 2}, "unclean.leader.election.enable", "true", "min.insync.replicas", "1")
	s.CopiesOn(t, "other", []int32{2, 3})
	s.Send(t, nil, Numbered("t", 0, 0, 90)...)
	m := NewDaemon(t, p.Mirror("t", "other"))
	m.Start()
	AwaitLevel(t, s, d, 40*time.Second, "t", "other")
	s.Kill(t, 2)
	awaitInSync(t, s, "t", 1)
	s.Send(t, nil, Numbered("t", 0, 90, 10)...)
	AwaitLevel(t, s, d, 40*time.Second, "t")
	m.Freeze()
	s.Kill(t, 1)
	s.Launch(t, 2)
	Eventually(t, 60*time.Second, func() error {
		logs, err := s.Logs(context.Background(), "t")
		if err == nil && logs[0].End != 90 {
			err = fmt.Errorf("source ends at %d after the unclean election, want 90", logs[0].End)
		}
		return err
	})
	s.Send(t, nil, Numbered("t", 0, 5000, 20)...)
	m.Thaw()
	m.failed("t", 90)
	if logs, err := d.Logs(context.Background(), "t"); err != nil || logs[0].End != 100 {
		t.Errorf("destination is %v, %v; want the end 100", logs, err)
	}
	s.Send(t, nil, Numbered("other", 0, 0, 50)...)
	AwaitLevel(t, s, d, 40*time.Second, "other")
	m.Do("recover", "--mirror", "east", "--topics", "t", "--reseed")
	AwaitLevel(t, s, d, 40*time.Second, "t")
	Identical(t, s, d, "t", "other")
}

func awaitInSync(t *testing.T, c *Cluster, topic string, n int) {
	t.Helper()
	Eventually(t, 30*time.Second, func() error {
		listed, err := c.adm.ListTopics(context.Background(), topic)
		if err != nil {
			return err
		}
		for _, part := range listed[topic].Partitions {
			if len(part.ISR) != n {
				return fmt.Errorf("%s has %v in sync, want %d", topic, part.ISR, n)
			}
		}
		return nil
	})
}

// A source restored from a backup has the same topic ids, the same leader epochs and, where it has been written to before
// anyone looks, a longer log. Only what the records are can tell.
func TestR7_SourceRestoredFromABackup(t *testing.T) {
	t.Parallel()
	s, d := StartCluster(t, Options{}), StartCluster(t, Options{})
	lost := map[string]int{"shorter": 50, "longer": 50, "none": 0}
	after := map[string]int{"shorter": 20, "longer": 80, "none": 30}
	topics := []string{"shorter", "longer", "none"}
	for _, topic := range topics {
		s.Topic(t, topic, 1)
		s.Send(t, nil, Numbered(topic, 0, 0, 100)...)
	}
	m := NewDaemon(t, Pair{s, d}.Mirror(topics...))
	m.Start()
	AwaitLevel(t, s, d, 40*time.Second, topics...)
	s.Stop(t, 1)
	backup := s.save(t)
	s.Launch(t, 1)
	s.AwaitUp(t)
	for _, topic := range topics {
		s.Send(t, nil, Numbered(topic, 0, 100, lost[topic])...)
	}
	AwaitLevel(t, s, d, 40*time.Second, topics...)
	m.Freeze()
	s.Kill(t, 1)
	s.restore(t, backup)
	s.Launch(t, 1)
	s.AwaitUp(t)
	for _, topic := range topics {
		s.Send(t, nil, Numbered(topic, 0, 9000, after[topic])...)
	}
	m.Thaw()
	for _, topic := range []string{"shorter", "longer"} {
		m.failed(topic, 100)
		if logs, err := d.Logs(context.Background(), topic); err != nil || logs[0].End != 150 {
			t.Errorf("%s on the destination is %v, %v; want the end 150", topic, logs, err)
		}
	}
	AwaitLevel(t, s, d, 40*time.Second, "none")
	Identical(t, s, d, "none")
}

// save copies the data of a cluster's only node, which must be down; restore puts it back.
func (c *Cluster) save(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	must(t, os.CopyFS(to, os.DirFS(filepath.Join(c.dir, "node-1", "data"))))
	return to
}

func (c *Cluster) restore(t *testing.T, from string) {
	t.Helper()
	data := filepath.Join(c.dir, "node-1", "data")
	must(t, os.RemoveAll(data))
	must(t, os.CopyFS(data, os.DirFS(from)))
}

// A source topic deleted and created again fails the copy, which stays, whether the new one is shorter or longer and
// whether mirrord runs or not; recover copies the new one.
func TestRecreatedSourceTopic(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	sizes := map[string]int{"shorter": 10, "longer": 300, "equal": 100}
	for topic := range sizes {
		p.S.Topic(t, topic, 1)
		p.S.Send(t, nil, Numbered(topic, 0, 0, 100)...)
	}
	m := NewDaemon(t, p.Mirror("shorter", "longer", "equal"))
	m.Start()
	AwaitLevel(t, p.S, p.D, 40*time.Second, "shorter", "longer", "equal")
	recreate := func(topic string) {
		_, err := p.S.adm.DeleteTopics(context.Background(), topic)
		must(t, err)
		Eventually(t, 20*time.Second, func() error {
			_, err := p.S.adm.CreateTopic(context.Background(), 1, 1, nil, topic)
			return err
		})
		p.S.Send(t, []kgo.Opt{kgo.UnknownTopicRetries(20)}, Numbered(topic, 0, 7000, sizes[topic])...)
	}
	recreate("shorter")
	m.Stop()
	recreate("longer")
	recreate("equal")
	m.Start()
	for topic := range sizes {
		m.failed(topic)
		logs, err := p.D.Logs(context.Background(), topic)
		must(t, err)
		if logs[0].End != 100 {
			t.Errorf("%s ends at %d on the destination, want 100", topic, logs[0].End)
		}
	}
	m.Do("recover", "--mirror", "east", "--topics", "shorter,longer,equal", "--reseed")
	AwaitLevel(t, p.S, p.D, 40*time.Second, "shorter", "longer", "equal")
	Identical(t, p.S, p.D, "shorter", "longer", "equal")
}
