package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// cleaning are the settings of a compacted topic that is cleaned all the time.
var cleaning = []string{
	"cleanup.policy", "compact", "segment.ms", "1000", "min.cleanable.dirty.ratio", "0.0001", "max.compaction.lag.ms", "1000",
	"retention.ms", "-1", "message.timestamp.after.max.ms", never,
}

// churner writes to a compacted topic the same few keys over and over, with tombstones, and rolls segments by record time.
type churner struct {
	c     *Cluster
	topic string
	clock time.Time
	n     int
}

func (w *churner) write(t *testing.T, batches int) {
	t.Helper()
	for range batches {
		var records []*kgo.Record
		for i := range 10 {
			w.n++
			r := &kgo.Record{Key: fmt.Appendf(nil, "k%d", i%5), Value: fmt.Appendf(nil, "%d", w.n), Timestamp: w.clock}
			if i == 9 { // the last of its key in the batch
				r.Value = nil
			}
			records = append(records, r)
		}
		w.c.raw(t, w.topic, kgo.ZstdCompression(), 0, records...)
		w.clock = w.clock.Add(400 * time.Millisecond)
	}
}

// roll closes the segment at work, so that all before may be cleaned.
func (w *churner) roll(t *testing.T) {
	t.Helper()
	for i := range 2 {
		w.clock = w.clock.Add(2 * time.Second)
		w.c.raw(t, w.topic, kgo.NoCompression(), 0, &kgo.Record{Key: fmt.Appendf(nil, "roll%d", i), Value: []byte("x"), Timestamp: w.clock})
	}
}

// records is how many data records a log holds.
func (c *Cluster) records(t *testing.T, topic string) (n int) {
	t.Helper()
	for _, b := range batchesFrom(t, c, topic, 0) {
		if !b.IsControl() {
			n += int(b.Count())
		}
	}
	return n
}

// cleaned waits until a log holds fewer data records than before.
func (c *Cluster) cleaned(t *testing.T, topic string, below int) {
	t.Helper()
	Eventually(t, soon, func() error {
		if n := c.records(t, topic); n >= below {
			return fmt.Errorf("%s still holds %d records", topic, n)
		}
		return nil
	})
}

// A compacted log whose first segments are gone and whose batches have holes: the copy has the same ones, tombstones with
// the delete horizon that the source's cleaner gave them. The destination then cleans its copy itself, fillers included,
// and readers get what they got before.
func TestCleanedLogStaysCleanable(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 1, append([]string{"delete.retention.ms", "86400000"}, cleaning...)...)
	w := &churner{c: p.S, topic: "t", clock: time.Now()}
	w.write(t, 30)
	w.roll(t)
	p.S.cleaned(t, "t", 40)
	p.S.Set(t, "t", "min.cleanable.dirty.ratio", "1", "max.compaction.lag.ms", never)
	first := batchesFrom(t, p.S, "t", 0)[0]
	if first.BaseOffset() == 0 {
		t.Errorf("the source's first batch begins at %d: nothing was cleaned away", first.BaseOffset())
	}
	m := NewDaemon(t, p.Mirror("t"))
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "t")
	Identical(t, p.S, p.D, "t")
	sameBatches(t, p, "t")
	horizons := 0
	for _, b := range batchesFrom(t, p.D, "t", 0) {
		if b.Attributes()&deleteHorizon != 0 {
			horizons++
		}
	}
	if horizons == 0 {
		t.Error("no batch of the copy has a delete horizon")
	}
	w.write(t, 20)
	w.roll(t)
	AwaitLevel(t, p.S, p.D, soon, "t")
	Identical(t, p.S, p.D, "t")
	uncleaned := p.D.records(t, "t")
	p.S.Set(t, "t", "min.cleanable.dirty.ratio", "0.0001", "max.compaction.lag.ms", "1000")
	p.D.cleaned(t, "t", uncleaned-150)
	Eventually(t, soon, func() error { return Alike(p.S, p.D, View{Cleaned: true}, "t") })
	if log := p.D.b.logTail(0); strings.Contains(log, "uncleanable") {
		t.Error(log)
	}
	m.Do("verify", "--config", m.ConfigFile(), "--mirror", "east", "--full")
	w.write(t, 1)
	AwaitLevel(t, p.S, p.D, soon, "t")
}

// writeKeyed writes one record a key, at the churner's time.
func (w *churner) writeKeyed(t *testing.T, value string, keys ...string) {
	t.Helper()
	var records []*kgo.Record
	for i, key := range keys {
		records = append(records, &kgo.Record{Key: []byte(key), Value: fmt.Appendf(nil, "%s %d", value, i), Timestamp: w.clock})
	}
	w.c.raw(t, w.topic, kgo.NoCompression(), 0, records...)
	w.clock = w.clock.Add(time.Second)
}

// The source's cleaner has removed what lay at the offsets of records that only the destination has: its own after a
// failover, a stranger's while the mirror was paused. Neither is taken for one that was cleaned away.
func TestCleaningHidesNoOtherRecords(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	writers := map[string]*churner{}
	for _, topic := range []string{"promoted", "paused"} {
		p.S.Topic(t, topic, 1, append([]string{"delete.retention.ms", "86400000"}, cleaning...)...)
		writers[topic] = &churner{c: p.S, topic: topic, clock: time.Now()}
		for i := range 30 {
			writers[topic].writeKeyed(t, "balance", fmt.Sprint("account", i))
		}
	}
	m := NewDaemon(t, p.Mirror("promoted", "paused"))
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "promoted", "paused")
	m.Do("stop", "--mirror", "east", "--topics", "promoted")
	m.Do("pause", "--mirror", "east", "--topics", "paused")
	for _, topic := range []string{"promoted", "paused"} {
		other := &churner{c: p.D, topic: topic, clock: writers[topic].clock}
		other.writeKeyed(t, "other", "account7", "own1", "own2")
		for range 20 {
			writers[topic].writeKeyed(t, "hot", "hot0", "hot1", "hot0", "hot1")
		}
		writers[topic].roll(t)
		p.S.cleaned(t, topic, 40)
	}
	for _, topic := range []string{"promoted", "paused"} {
		seam(t, m, topic, 30)
	}
	m.Do("start", "--mirror", "east", "--topics", "promoted", "--no-wait")
	m.Do("resume", "--mirror", "east", "--topics", "paused", "--no-wait")
	m.failed("promoted", 30, "3 records", "--reseed")
	m.failed("paused", 30, "3 records", "somebody else has written", "offset 30: a producer without an id")
	if n := m.Metric("mirrord_foreign_writes_total", `topic="paused"`); n != 1 {
		t.Errorf("%v foreign writes were counted", n)
	}
	m.Do("recover", "--mirror", "east", "--topics", "paused", "--no-wait")
	Eventually(t, soon, func() error { // it is not copied over either
		row, err := m.Partition("paused", 0)
		if err == nil && (row.State != "FAILED" || strings.Contains(row.ErrorMessage, "somebody else")) {
			err = fmt.Errorf("%+v", row)
		}
		return err
	})
	for topic := range writers {
		m.Do("recover", "--mirror", "east", "--topics", topic, "--reseed")
		AwaitLevel(t, p.S, p.D, soon, topic)
		Eventually(t, soon, func() error { return Alike(p.S, p.D, View{Cleaned: true}, topic) })
	}
	found, err := filepath.Glob(filepath.Join(m.dir, "reseed", "east", "*", "partition-0.jsonl"))
	must(t, err)
	for _, name := range found {
		if b, err := os.ReadFile(name); err != nil || strings.Count(string(b), "\n") != 3 {
			t.Errorf("exported: %s, %v", b, err)
		}
	}
	if len(found) != 2 {
		t.Errorf("exports: %v", found)
	}
}

// The source has cleaned more than the destination when it gives up compaction. That is no divergence: the mirror goes on,
// also after a restart, and both sides count as equal.
func TestTheSourceGivesUpCompaction(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 1, append([]string{"delete.retention.ms", "86400000"}, cleaning...)...)
	p.S.Set(t, "t", "min.cleanable.dirty.ratio", "1", "max.compaction.lag.ms", never) // no cleaning before all is mirrored
	m := NewDaemon(t, p.Mirror("t"))
	m.Start()
	w := &churner{c: p.S, topic: "t", clock: time.Now()}
	w.write(t, 30)
	w.roll(t)
	AwaitLevel(t, p.S, p.D, soon, "t")
	m.Do("pause", "--mirror", "east", "--topics", "t") // the destination keeps what it has
	p.S.Set(t, "t", "min.cleanable.dirty.ratio", "0.0001", "max.compaction.lag.ms", "1000")
	p.S.cleaned(t, "t", 100)
	p.S.Set(t, "t", "cleanup.policy", "delete")
	m.Stop()
	m.Start()
	m.Do("resume", "--mirror", "east", "--topics", "t")
	w.write(t, 2)
	AwaitLevel(t, p.S, p.D, soon, "t")
	m.Do("verify", "--config", m.ConfigFile(), "--mirror", "east", "--full")
	m.Do("stop", "--mirror", "east", "--topics", "t")
	m.Do("start", "--mirror", "east", "--topics", "t")
	w.write(t, 2)
	AwaitLevel(t, p.S, p.D, soon, "t")
}
