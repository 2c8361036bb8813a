package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"mirrord/internal/recordbatch"
)

// flip changes one byte on the disk of a cluster's only node: in the records of the batch that holds an offset of
// partition 0. Doing it twice undoes it.
func (c *Cluster) flip(t testing.TB, topic string, offset int64) {
	t.Helper()
	name := filepath.Join(c.dir, "node-1", "data", topic+"-0", "00000000000000000000.log")
	all, err := os.ReadFile(name)
	must(t, err)
	for rest := all; len(rest) > 0; {
		var b recordbatch.Batch
		b, rest, err = recordbatch.Cut(rest)
		must(t, err)
		if b.BaseOffset() <= offset && offset < b.NextOffset() {
			at := len(all) - len(rest) - 3 // in the value of its last record
			file, err := os.OpenFile(name, os.O_WRONLY, 0)
			must(t, err)
			defer file.Close()
			_, err = file.WriteAt([]byte{all[at] ^ 4}, int64(at))
			must(t, err)
			return
		}
	}
	t.Fatalf("%s has no offset %d on disk", topic, offset)
}

// Batches that are damaged on the source's disk fail their partitions alone, name topic, partition and offset, and store
// nothing wrong; what lies before them is there. Recover goes on once the log is repaired, or cut behind the batch.
func TestDamagedBatchesAtTheSource(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	topics := []string{"repaired", "cut", "sound"}
	for _, topic := range topics {
		p.S.Topic(t, topic, 1)
		for i := range 5 { // batches of 4 records
			p.S.Send(t, nil, Numbered(topic, 0, 4*i, 4)...)
		}
	}
	for _, topic := range topics[:2] {
		p.S.flip(t, topic, 9)
	}
	set := p.Mirror(topics...)
	set.Retry = "max_attempts: 0"
	m := NewDaemon(t, set)
	m.Start()
	for _, topic := range topics[:2] {
		Eventually(t, soon, func() error { return m.wantState(topic, 0, "FAILED", "batch at offset 8") })
		must(t, m.wantLog("level=WARN", "to=FAILED", "topic="+topic, "partition=0", "offset 8"))
	}
	p.S.Send(t, nil, Numbered("sound", 0, 20, 4)...)
	AwaitLevel(t, p.S, p.D, soon, "sound")
	for _, topic := range topics[:2] {
		must(t, p.D.wantEnd(topic, 0, 8))
	}
	p.S.flip(t, "repaired", 9)
	p.S.trim(t, "cut", 0, 12)
	m.Do("recover", "--mirror", "east", "--topics", "repaired,cut")
	AwaitLevel(t, p.S, p.D, soon, topics...)
	Identical(t, p.S, p.D, topics...)
	m.Do("verify", "--config", m.ConfigFile(), "--mirror", "east", "--full")
	if n := m.Metric("mirrord_lost_records_total", `topic="cut"`); n != 4 {
		t.Errorf("%v records were counted as lost", n)
	}
	if n := m.Metric("mirrord_partition_failures_total", `kind="corrupt_source"`); n < 2 {
		t.Error(fmt.Sprint(n, " failures were counted"))
	}
}
