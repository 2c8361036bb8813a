package e2e

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/statestore"
)

// Crowd is a pair with many partitions to mirror: 300 of them, 3,000 with MIRRORD_STORM=1.
type Crowd struct {
	Pair
	Topics []string
	Each   int32         // partitions of a topic
	Limit  time.Duration // for what has no limit of its own
}

// NewCrowd creates so many topics at the source, with three records in every partition.
func NewCrowd(t *testing.T, topics int) Crowd {
	t.Helper()
	c := Crowd{Each: int32(300 / topics), Limit: soon}
	if os.Getenv("MIRRORD_STORM") != "" {
		c.Pair = Pair{StartCluster(t, Options{Heap: "1g"}), StartCluster(t, Options{Heap: "1g"})} // so much takes long to be taken away
		c.Each, c.Limit = 10*c.Each, 3*time.Minute
	} else {
		c.Pair = SharedPair(t)
	}
	for i := range topics {
		c.Topics = append(c.Topics, fmt.Sprint("t", i))
	}
	for chunk := range slices.Chunk(c.Topics, 50) {
		made, err := c.S.Admin().CreateTopics(context.Background(), c.Each, 1, nil, chunk...)
		must(t, err)
		must(t, made.Error())
	}
	c.Write(t, 0, 3)
	return c
}

// Size is how many partitions there are.
func (c Crowd) Size() int { return len(c.Topics) * int(c.Each) }

// Write appends n records to every partition of the source.
func (c Crowd) Write(t *testing.T, first, n int) {
	t.Helper()
	var records []*kgo.Record
	for _, topic := range c.Topics {
		for p := range c.Each {
			records = append(records, Numbered(topic, p, first, n)...)
		}
	}
	c.S.Send(t, []kgo.Opt{kgo.UnknownTopicRetries(-1)}, records...) // a busy broker shows topics late
}

// HasEnds demands that each partition of topics ends at an offset.
func (c *Cluster) HasEnds(end int64, topics ...string) error {
	all, err := c.adm.ListEndOffsets(context.Background(), topics...)
	if err != nil {
		return err
	}
	for _, topic := range topics {
		if len(all[topic]) == 0 {
			return fmt.Errorf("%s has no partition", topic)
		}
		for _, o := range all[topic] {
			if o.Err != nil {
				return fmt.Errorf("end of %s-%d: %w", topic, o.Partition, o.Err)
			}
			if o.Offset != end {
				return fmt.Errorf("%s-%d ends at %d, want %d", topic, o.Partition, o.Offset, end)
			}
		}
	}
	return nil
}

// AwaitAll waits until every partition is in a state; whether all is copied, the brokers say.
func (c Crowd) AwaitAll(m *Daemon, state string, end int64) {
	m.t.Helper()
	Eventually(m.t, c.Limit, func() error { return c.D.HasEnds(end, c.Topics...) })
	Eventually(m.t, c.Limit, func() error { return c.wantAll(m, state) })
}

func (c Crowd) wantAll(m *Daemon, state string) error {
	counts := map[string]int{}
	for _, row := range m.Describe() {
		if row.State != state {
			counts[row.State+" "+row.ErrorMessage]++
		} else {
			counts[state]++
		}
	}
	if counts[state] != c.Size() || len(counts) != 1 {
		return fmt.Errorf("want %d partitions %s, there are %v", c.Size(), state, counts)
	}
	return nil
}

// Rows are all partitions by name.
func (d *Daemon) Rows() map[string]Partition {
	d.t.Helper()
	rows := map[string]Partition{}
	for _, row := range d.Describe() {
		rows[fmt.Sprint(row.Topic, "-", row.Partition)] = row
	}
	return rows
}

// Outage kills the source. The function that it gives, or else the test's end, starts it again.
func (c Crowd) Outage(t *testing.T) (end func()) {
	t.Helper()
	c.S.Kill(t, 1)
	over := false
	end = func() {
		if !over {
			over = true
			c.S.Launch(t, 1)
			c.S.AwaitUp(t)
		}
	}
	t.Cleanup(end)
	return end
}

// Toll is what an instance costs others: connections to the source, requests to each cluster, lines of log, offsets of
// the state topic, markers included.
type Toll struct {
	Connections         int
	Source, Destination map[kmsg.Key]int
	Lines, Offsets      int
}

// TollOf reads the present counts of an instance that reaches both clusters through their proxies.
func (c Crowd) TollOf(m *Daemon) Toll {
	m.t.Helper()
	logs, err := c.D.Logs(context.Background(), statestore.StateTopic)
	must(m.t, err)
	written := 0
	for _, log := range logs {
		written += int(log.End)
	}
	return Toll{c.S.Nodes[0].Proxy.Connections(), requests(c.S), requests(c.D), m.logLines(""), written}
}

// Since is what was added since an earlier reading.
func (x Toll) Since(before Toll) Toll {
	return Toll{
		x.Connections - before.Connections, less(x.Source, before.Source), less(x.Destination, before.Destination),
		x.Lines - before.Lines, x.Offsets - before.Offsets,
	}
}

func (x Toll) String() string {
	return fmt.Sprintf("source: %d connections, %s; destination: %s; %d log lines, %d state offsets",
		x.Connections, inWords(x.Source), inWords(x.Destination), x.Lines, x.Offsets)
}

// Within reports what is more than allowed; requests are those to the destination.
func (x Toll) Within(t *testing.T, what string, connections, requests, lines, offsets int) {
	t.Helper()
	t.Logf("%s: %s", what, x)
	for _, of := range []struct {
		name      string
		got, most int
	}{
		{"connections to the source", x.Connections, connections},
		{"requests to the destination", sum(x.Destination), requests},
		{"lines of log", x.Lines, lines},
		{"offsets of the state topic", x.Offsets, offsets},
	} {
		if of.got > of.most {
			t.Errorf("%s: %d %s, allowed are %d", what, of.got, of.name, of.most)
		}
	}
}

func requests(c *Cluster) map[kmsg.Key]int {
	counts := map[kmsg.Key]int{}
	for key := range int16(kmsg.MaxKey + 1) {
		for _, n := range c.Nodes {
			counts[kmsg.Key(key)] += n.Proxy.Requests(key)
		}
	}
	return counts
}

func less(a, b map[kmsg.Key]int) map[kmsg.Key]int {
	left := map[kmsg.Key]int{}
	for key, n := range a {
		if n > b[key] {
			left[key] = n - b[key]
		}
	}
	return left
}

func sum(counts map[kmsg.Key]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func inWords(counts map[kmsg.Key]int) string {
	var words []string
	for key, n := range counts {
		words = append(words, fmt.Sprint(key.Name(), " ", n))
	}
	slices.Sort(words)
	return fmt.Sprintf("%d requests (%s)", sum(counts), strings.Join(words, ", "))
}
