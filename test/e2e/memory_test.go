package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Memory: a limit for record data, and what SPEC §13 allows a process beside it.
const (
	memoryLimit = 64 << 20
	memoryBound = memoryLimit + 100<<20
)

// PeakMemory is the most that the process has had resident, in bytes.
func (d *Daemon) PeakMemory() int64 {
	d.t.Helper()
	bytes, err := peakMemory(d.p.cmd.Process.Pid)
	must(d.t, err)
	return bytes
}

// bounded demands that the daemon, and verify --full of its mirror, stay within memoryBound.
func (d *Daemon) bounded() {
	d.t.Helper()
	r := d.Do("verify", "--config", d.ConfigFile(), "--mirror", "east", "--full")
	for who, peak := range map[string]int64{"the daemon": d.PeakMemory(), "verify": r.Peak} {
		d.t.Logf("%s: peak %d MiB", who, peak>>20)
		if peak > memoryBound {
			d.t.Errorf("%s took %d MiB, want at most %d", who, peak>>20, memoryBound>>20)
		}
	}
}

// A log several times larger than the memory limit is copied and compared within it. It is large under MIRRORD_STORM.
func TestMemoryStaysBounded(t *testing.T) {
	t.Parallel()
	size := 448 << 20
	if os.Getenv("MIRRORD_STORM") != "" {
		size = 2 << 30
	}
	const batch = 512 << 10
	bounded(t, 8, size/batch, batch)
}

// Batches of a third of the memory limit: a daemon and a comparison hold few of them at once.
func TestMemoryHoldsFewLargeBatches(t *testing.T) {
	t.Parallel()
	partitions, each := int32(6), 2
	if os.Getenv("MIRRORD_STORM") != "" {
		partitions, each = 12, 5
	}
	bounded(t, partitions, int(partitions)*each, 20<<20, "max.message.bytes", "40000000")
}

// bounded mirrors a topic of so many batches under a memory limit, and demands that it is kept.
func bounded(t *testing.T, partitions int32, batches, size int, settings ...string) {
	t.Helper()
	p := SharedPair(t)
	p.S.Topic(t, "t", partitions, settings...)
	value := make([]byte, size)
	_, _ = rand.Read(value)
	raw, err := NoProducer(&kgo.Record{Value: value, Timestamp: time.Now()}).Encode()
	must(t, err)
	for i := range int32(batches) {
		must(t, p.S.ProduceRaw(context.Background(), "t", i%partitions, raw))
	}
	set := p.Mirror("t")
	set.Extra = []string{fmt.Sprintf("memory_limit: %d", memoryLimit)}
	m := NewDaemon(t, set)
	m.Start()
	AwaitLevel(t, p.S, p.D, 2*time.Minute, "t")
	m.bounded()
}

// Records that compress 100:1, in many partitions: as they are, and where each batch has to be opened and encoded again
// since its topic has LogAppendTime. Limits count compressed bytes; memory must not follow what they inflate to.
func TestB093_MemoryDoesNotFollowTheCompressionRatio(t *testing.T) {
	t.Parallel()
	partitions, batches := int32(24), 6
	if os.Getenv("MIRRORD_STORM") != "" {
		partitions, batches = 200, 40
	}
	p := SharedPair(t)
	p.S.Topic(t, "dense", partitions)
	p.S.Topic(t, "stamped", partitions/4, "message.timestamp.type", "LogAppendTime")
	b := NoProducer(Numbered("dense", 0, 0, 40)...)
	b.Codec = kgo.ZstdCompression()
	for _, r := range b.Records {
		r.Timestamp, r.Value = time.Now(), dense(200<<10)
	}
	raw, err := b.Encode()
	must(t, err)
	t.Logf("%d bytes hold %d", len(raw), 40*200<<10)
	for i := range partitions * int32(batches) {
		must(t, p.S.ProduceRaw(context.Background(), "dense", i%partitions, raw))
	}
	for i := range partitions {
		must(t, p.S.ProduceRaw(context.Background(), "stamped", i%(partitions/4), raw))
	}
	set := p.Mirror("dense", "stamped")
	set.Extra = []string{fmt.Sprintf("memory_limit: %d", memoryLimit)}
	m := NewDaemon(t, set)
	m.Start()
	AwaitLevel(t, p.S, p.D, 2*time.Minute, "dense", "stamped")
	m.bounded()
}

// dense makes a value that compresses about 100:1.
func dense(n int) []byte {
	part := make([]byte, n/100)
	_, _ = rand.Read(part)
	return append(part, bytes.Repeat([]byte("0123456789"), (n-len(part))/10)...)
}

// A batch of few bytes that inflates to gigabytes passes where it need not be opened. Where it must, its partition fails
// alone, in little memory, and says where; verify says that it could not compare it.
func TestBombs(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "passes", 1, "max.message.bytes", "8000000")
	p.S.Topic(t, "opened", 2, "max.message.bytes", "8000000", "message.timestamp.type", "LogAppendTime")
	b := NoProducer(&kgo.Record{Key: []byte("bomb"), Value: make([]byte, 300<<20), Timestamp: time.Now()})
	b.Codec = kgo.ZstdCompression()
	raw, err := b.Encode()
	must(t, err)
	t.Logf("%d bytes hold 300 MiB", len(raw))
	for _, topic := range []string{"passes", "opened"} {
		p.S.Send(t, nil, Numbered(topic, 0, 0, 10)...)
		must(t, p.S.ProduceRaw(context.Background(), topic, 0, raw))
		p.S.Send(t, nil, Numbered(topic, 0, 10, 10)...)
	}
	p.S.Send(t, nil, Numbered("opened", 1, 0, 10)...)
	set := p.Mirror("passes", "opened")
	set.Extra = []string{fmt.Sprintf("memory_limit: %d", memoryLimit)}
	m := NewDaemon(t, set)
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "passes")
	Eventually(t, soon, func() error {
		return m.wantState("opened", 0, "FAILED", "offset 10 has to be encoded again: compressed batch inflates beyond the limit")
	})
	must(t, m.wantState("opened", 1, "MIRRORING", ""))
	Eventually(t, soon, func() error { return sameEnd(p, "opened", 1) })
	must(t, p.D.wantEnd("opened", 0, 10))
	r := m.Run("verify", "--config", m.ConfigFile(), "--mirror", "east", "--full")
	if r.Code != 1 || !strings.Contains(r.Err, "passes-0: not compared to the end") {
		t.Errorf("verify: code %d\n%s%s", r.Code, r.Out, r.Err)
	}
	if peak := max(m.PeakMemory(), r.Peak); peak > memoryBound {
		t.Errorf("%d MiB were taken, want at most %d", peak>>20, memoryBound>>20)
	}
}
