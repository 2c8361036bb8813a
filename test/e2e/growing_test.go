package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topics of one partition come by the thousand, and then more and more: each of them is served, and an idle daemon stays
// small and quiet, with at most one request for all metadata a refresh and cluster (case B040; 3,500 topics, a hundred a
// minute, with MIRRORD_STORM=1).
func TestB040_MoreAndMoreTopics(t *testing.T) {
	t.Parallel()
	first, more, rounds, pause, limit := 150, 20, 3, time.Duration(0), 2*soon
	var p Pair
	if os.Getenv("MIRRORD_STORM") != "" {
		first, more, rounds, pause, limit = 3000, 100, 5, time.Minute, 5*time.Minute
		p = Pair{StartCluster(t, Options{Heap: "1g"}), StartCluster(t, Options{Heap: "1g"})} // so much takes long to be taken away
	} else {
		p = SharedPair(t)
	}
	c := Crowd{Pair: p, Each: 1, Limit: limit}
	began := time.Now()
	c.grow(t, first)
	m := NewDaemon(t, c.Proxied("t[0-9]+"))
	m.Start()
	c.AwaitAll(m, "MIRRORING", 10)
	t.Logf("%d topics are level %v after the first was created", first, time.Since(began))
	next := time.Now()
	for range rounds {
		c.grow(t, more)
		c.AwaitAll(m, "MIRRORING", 10)
		next = next.Add(pause)
		<-time.After(time.Until(next))
	}
	m.refreshed(2)
	quiet := c.idle(m, 10)
	t.Logf("idle with %d topics: %.0f MiB, %.2f cores, requests for all metadata a refresh: source %.2f, destination %.2f",
		len(c.Topics), resident(m), quiet.cores, quiet.source, quiet.destination)
	if resident(m) > 500 || quiet.cores > 1 || quiet.source > 1 || quiet.destination > 1 {
		t.Error("that is too much")
	}
	some := slices.Concat(c.Topics[:5], c.Topics[len(c.Topics)-5:])
	if os.Getenv("MIRRORD_STORM") != "" {
		some = c.Topics
	}
	Identical(t, c.S, c.D, some...)
}

// grow creates so many topics more in one go, with ten records each.
func (c *Crowd) grow(t *testing.T, n int) {
	t.Helper()
	var topics []string
	for range n {
		topics = append(topics, fmt.Sprint("t", len(c.Topics)+len(topics)))
	}
	made, err := c.S.Admin().CreateTopics(context.Background(), 1, 1, nil, topics...)
	must(t, err)
	must(t, made.Error())
	Crowd{Pair: c.Pair, Topics: topics, Each: 1}.Write(t, 0, 10)
	c.Topics = append(c.Topics, topics...)
}

// idleness is what an instance takes when nothing happens; requests are those for all metadata, a refresh.
type idleness struct{ cores, source, destination float64 }

// idle measures over some refreshes.
func (c Crowd) idle(m *Daemon, refreshes float64) (q idleness) {
	m.t.Helper()
	const count, cpu = "mirrord_refresh_duration_seconds_count", "process_cpu_seconds_total"
	var asked [2]atomic.Int64
	for i, of := range []*Cluster{c.S, c.D} {
		proxy := of.Nodes[0].Proxy
		proxy.Watch(func(key int16, frame []byte) {
			if key == int16(kmsg.Metadata) && ofAllTopics(frame) {
				asked[i].Add(1)
			}
		})
		defer proxy.Watch(nil)
	}
	began, n, used := time.Now(), m.Metric(count), m.Metric(cpu)
	m.refreshed(refreshes)
	took := time.Since(began).Seconds()
	rounds := m.Metric(count) - n
	each := func(i int) float64 { return float64(max(0, asked[i].Load()-1)) / rounds } // another refresh may have begun by now
	return idleness{(m.Metric(cpu) - used) / took, each(0), each(1)}
}

// ofAllTopics reports whether a Metadata request (v9 or newer) asks for everything there is: it has no list of topics where
// Produce has no transactional id.
func ofAllTopics(frame []byte) bool { return ofData(frame) }
