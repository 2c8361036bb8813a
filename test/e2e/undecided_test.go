package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// exactMirror starts a mirror of topic t in exact mode.
func exactMirror(t *testing.T, p Pair) (*Daemon, Settings) {
	t.Helper()
	p.D.SetBrokers(t, verification, "false")
	s := p.Mirror("t")
	s.MirrorExtra = []string{"transactions: exact"}
	m := NewDaemon(t, s)
	m.Start()
	return m, s
}

// valued counts the records with a value that a read_committed consumer gets of partition 0.
func (c *Cluster) valued(t *testing.T, topic, value string) (n int) {
	t.Helper()
	logs, err := c.Logs(context.Background(), topic)
	must(t, err)
	r := newReader(c, topic, 0, logs[0])
	for {
		rec, err := r.next()
		must(t, err)
		if rec == nil {
			return n
		}
		if !rec.Attrs.IsControl() && string(rec.Value) == value {
			n++
		}
	}
}

// sameStable waits until no more is undecided at the destination than at the source.
func sameStable(t *testing.T, p Pair) {
	t.Helper()
	Eventually(t, soon, func() error {
		source, err := p.S.Logs(context.Background(), "t")
		if err != nil {
			return err
		}
		copied, err := p.D.Logs(context.Background(), "t")
		if err == nil && copied[0].Stable != source[0].Stable {
			err = fmt.Errorf("the last stable offset is %d, at the source %d", copied[0].Stable, source[0].Stable)
		}
		return err
	})
}

// A transaction of a compacted topic was copied in part when it was aborted; the source's cleaner took its records and then
// its marker, and its producer has committed another one since. What was aborted does not come to life at the destination.
func TestAbortedTransactionWhoseMarkerWasCleaned(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 1, append([]string{"delete.retention.ms", "1000"}, cleaning...)...)
	m, _ := exactMirror(t, p)
	clock := time.Now()
	plain := func(key string) {
		p.S.raw(t, "t", kgo.NoCompression(), 0, &kgo.Record{Key: []byte(key), Value: []byte("plain"), Timestamp: clock})
		clock = clock.Add(2 * time.Second)
	}
	ghost := func(key string) *kgo.Record {
		return &kgo.Record{Topic: "t", Key: []byte(key), Value: []byte("aborted")}
	}
	plain("begin")
	txn := p.S.Transactional(t, "txn", true) // whose transactions share an epoch
	must(t, errors.Join(txn.BeginTransaction(), send(txn, ghost("1"), ghost("2"))))
	Eventually(t, soon, func() error { return p.D.wantEnd("t", 0, 3) })
	m.Stop()
	must(t, end(txn, false))
	p.S.decided(t, "t")
	plain("other")
	must(t, errors.Join(txn.BeginTransaction(), send(txn, &kgo.Record{Topic: "t", Key: []byte("3"), Value: []byte("committed")}), end(txn, true)))
	p.S.decided(t, "t")
	n := 0
	must(t, persist(2*time.Minute, func() error {
		if n++; n%20 == 1 {
			plain("roll")
		}
		for _, b := range batchesFrom(t, p.S, "t", 0) {
			if b.BaseOffset() >= 1 && b.BaseOffset() <= 3 {
				return fmt.Errorf("the source's cleaner has left offset %d", b.BaseOffset())
			}
		}
		return nil
	}))
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "t")
	sameStable(t, p)
	if a, c := p.D.valued(t, "t", "aborted"), p.D.valued(t, "t", "committed"); a != 0 || c != 1 {
		t.Errorf("a read_committed consumer of the destination gets %d aborted records and %d committed ones, want 0 and 1", a, c)
	}
	m.Do("verify", "--config", m.ConfigFile(), "--mirror", "east", "--full")
}

// The mode is changed from exact to committed while transactions are open that were copied in part. They end at the
// destination as they end at the source.
func TestFromExactToCommittedWithTransactionsOpen(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 1)
	m, s := exactMirror(t, p)
	p.S.Send(t, nil, Numbered("t", 0, 0, 10)...)
	commits, aborts := p.S.Transactional(t, "commits", false), p.S.Transactional(t, "aborts", true)
	record := func(value string) *kgo.Record { return &kgo.Record{Topic: "t", Value: []byte(value)} }
	must(t, errors.Join(commits.BeginTransaction(), aborts.BeginTransaction()))
	must(t, errors.Join(send(commits, record("committed"), record("committed")), send(aborts, record("aborted"), record("aborted"))))
	Eventually(t, soon, func() error { return p.D.wantEnd("t", 0, 14) })
	s.MirrorExtra = []string{"transactions: committed"}
	m.Write(s)
	m.Reload()
	Eventually(t, soon, func() error { return m.wantMode("east", "committed") })
	p.D.SetBrokers(t, verification, "true")
	must(t, errors.Join(send(commits, record("committed")), send(aborts, record("aborted")), end(commits, true), end(aborts, false)))
	p.S.Send(t, nil, Numbered("t", 0, 10, 10)...)
	p.S.decided(t, "t")
	AwaitLevel(t, p.S, p.D, soon, "t")
	sameStable(t, p)
	Identical(t, p.S, p.D, "t")
	if a, c := p.D.valued(t, "t", "aborted"), p.D.valued(t, "t", "committed"); a != 0 || c != 3 {
		t.Errorf("a read_committed consumer of the destination gets %d aborted records and %d committed ones, want 0 and 3", a, c)
	}
	m.Do("verify", "--config", m.ConfigFile(), "--mirror", "east", "--full")
}
