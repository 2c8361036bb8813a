package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/recordbatch"
)

// beginsAt makes a topic of one partition at the source whose log begins at so many million, with a hundred records.
func beginsAt(t *testing.T, c *Cluster, topic string, millions int) {
	t.Helper()
	c.Topic(t, topic, 1)
	b, err := recordbatch.Filler(kafka.Codec, recordbatch.MaxFiller, time.Now().UnixMilli())
	must(t, err)
	for range millions {
		must(t, c.ProduceRaw(context.Background(), topic, 0, b))
	}
	c.trim(t, topic, 0, int64(millions)*1_000_000)
	c.Send(t, nil, Numbered(topic, 0, 0, 100)...)
}

// awaitSeeding waits until a topic's seeding has got to an offset.
func awaitSeeding(t *testing.T, c *Cluster, topic string, to int64) {
	t.Helper()
	Eventually(t, 30*time.Second, func() error {
		logs, err := c.Logs(context.Background(), topic)
		if err == nil && logs[0].End < to {
			err = fmt.Errorf("%s is seeded up to %d", topic, logs[0].End)
		}
		return err
	})
}

// slowly lets about one batch of fillers in three seconds through.
const slowly = "throttle: 300000"

// The instance that seeds is killed, then the source is lost: what is promoted holds no filler, claims nothing as mirrored
// and has its cleanup policy.
func TestR13_AKilledSeedingIsNotPromoted(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	s := p.Proxied("deleting", "compacted")
	s.Extra = []string{slowly}
	for _, topic := range s.Topics {
		beginsAt(t, p.S, topic, 4)
	}
	p.S.Set(t, "compacted", "cleanup.policy", "compact")
	m := NewDaemon(t, s)
	m.Start()
	for _, topic := range s.Topics {
		awaitSeeding(t, p.D, topic, 1_000_000)
	}
	m.Kill()
	p.S.Nodes[0].Proxy.Cut()
	m.Start()
	m.Do("stop", "--mirror", "east", "--topics", "deleting,compacted")
	for _, topic := range s.Topics {
		logs, err := p.D.Logs(context.Background(), topic)
		must(t, err)
		if logs[0].Start != logs[0].End {
			t.Errorf("consumers of %s read %d fillers", topic, logs[0].End-logs[0].Start)
		}
		if row, err := m.Partition(topic, 0); err != nil || row.LastMirrorOffset != -1 {
			t.Errorf("%s claims to be mirrored up to %d, %v", topic, row.LastMirrorOffset, err)
		}
	}
	Eventually(t, 15*time.Second, func() error { return p.D.wantSettings("compacted", "cleanup.policy", "compact") })
}

// A seeding that is paused, stopped or interrupted by a restart goes on as one: no record is told lost, and what is left
// is not filled offset by offset.
func TestR13_ACutSeedingGoesOn(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	beginsAt(t, p.S, "t", 8)
	s := p.Proxied("t")
	s.MirrorExtra = []string{"on_lost_range: fail", "fillers: transactions"}
	s.Extra = []string{slowly}
	m := NewDaemon(t, s)
	m.Start()
	awaitSeeding(t, p.D, "t", 1_000_000)
	if row, err := m.Partition("t", 0); err != nil || row.LagSeconds == 0 {
		t.Errorf("nothing is mirrored yet, and the lag is told as %v s, %v", row.LagSeconds, err)
	}
	for _, cut := range [][2]string{{"pause", "resume"}, {"stop", "start"}} {
		m.Do(cut[0], "--mirror", "east", "--topics", "t")
		logs, err := p.D.Logs(context.Background(), "t")
		if err != nil || logs[0].Start != logs[0].End {
			t.Errorf("after %s the log is %+v, %v", cut[0], logs, err)
		}
		m.Do(cut[1], "--mirror", "east", "--topics", "t", "--no-wait")
		awaitSeeding(t, p.D, "t", logs[0].End+1)
	}
	m.Stop()
	s.Extra = nil
	m.Write(s)
	m.Start()
	AwaitLevel(t, p.S, p.D, 30*time.Second, "t")
	Identical(t, p.S, p.D, "t")
	if n := m.Metric("mirrord_lost_records_total"); n != 0 {
		t.Errorf("%v records are told lost; none ever was there", n)
	}
}
