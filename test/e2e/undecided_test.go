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
	fromExact(t, "transactions: committed")
}

// As before, where the way in which holes are filled rules exact mode out.
func TestFromExactToEmptyTransactionsWithTransactionsOpen(t *testing.T) {
	t.Parallel()
	fromExact(t, "transactions: auto", "fillers: transactions")
}

func fromExact(t *testing.T, to ...string) {
	t.Helper()
	p := SharedPair(t)
	p.S.Topic(t, "t", 1)
	m, s := exactMirror(t, p)
	p.S.Send(t, nil, Numbered("t", 0, 0, 10)...)
	commits, aborts := p.S.Transactional(t, "commits", false), p.S.Transactional(t, "aborts", true)
	record := func(value string) *kgo.Record { return &kgo.Record{Topic: "t", Value: []byte(value)} }
	must(t, errors.Join(commits.BeginTransaction(), aborts.BeginTransaction()))
	must(t, errors.Join(send(commits, record("committed"), record("committed")), send(aborts, record("aborted"), record("aborted"))))
	Eventually(t, soon, func() error { return p.D.wantEnd("t", 0, 14) })
	s.MirrorExtra = to
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

// whole runs transactions one after another, and waits until they are decided.
func (c *Cluster) whole(t *testing.T, id string, commits ...bool) {
	t.Helper()
	cl := c.Transactional(t, id, false)
	for i, commit := range commits {
		r := &kgo.Record{Topic: "t", Key: fmt.Appendf(nil, "%s-%d", id, i), Value: []byte(decision(commit))}
		must(t, errors.Join(cl.BeginTransaction(), send(cl, r), end(cl, commit)))
	}
	c.decided(t, "t")
}

// The primary is lost and rebuilt as an empty cluster, which gives out producer ids from 0 again, with epochs below those
// that the survivor remembers. The survivor is mirrored to it, it takes over, and is mirrored to the survivor.
func TestTransactionsOfARebuiltPrimary(t *testing.T) {
	t.Parallel()
	old, fresh, d := StartCluster(t, Options{}), StartCluster(t, Options{}), SharedPair(t).D
	for _, c := range []*Cluster{d, fresh} {
		c.SetBrokers(t, verification, "false")
	}
	old.Topic(t, "t", 1)
	old.whole(t, "old", true, false, true, true, false, true)
	s := Pair{old, d}.Mirror("t")
	s.MirrorExtra = []string{"transactions: exact"}
	there := NewDaemon(t, s)
	there.Start()
	AwaitLevel(t, old, d, soon, "t")
	there.Do("stop", "--mirror", "east", "--topics", "t")
	d.whole(t, "survivor", true, false)

	s = Pair{d, fresh}.Mirror("t")
	s.Mirror, s.Group, s.MirrorExtra = "west", "mirrord-west", []string{"transactions: exact"}
	back := NewDaemon(t, s)
	back.Start()
	AwaitLevel(t, d, fresh, soon, "t")
	back.Do("stop", "--mirror", "west", "--topics", "t")

	fresh.whole(t, "rebuilt", true, false, true)
	there.Do("create", "--mirror", "again", "--mirror-config", propertiesFile(t, "bootstrap.servers="+fresh.Bootstrap(), "topics.include=t", "transactions=exact"))
	Eventually(t, soon, func() error {
		if r := there.Run("resume", "--mirror", "again", "--topics", "t", "--timeout", "5s"); r.Code == 1 {
			return fmt.Errorf("%s%s", r.Out, r.Err)
		}
		return nil
	})
	AwaitLevel(t, fresh, d, soon, "t")
	must(t, Alike(fresh, d, View{Uncommitted: true}, "t"))
	Identical(t, fresh, d, "t")
}

// Somebody switches the verification of transactions on again: the partition says which setting it is, and goes on once it
// is off.
func TestVerificationOfTransactionsSwitchedOnAgain(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 1)
	m, _ := exactMirror(t, p)
	p.S.whole(t, "before", true)
	AwaitLevel(t, p.S, p.D, soon, "t")
	p.D.SetBrokers(t, verification, "true")
	p.S.whole(t, "after", true)
	Eventually(t, soon, func() error { return m.wantState("t", 0, "FAILED", verification+"=false") })
	p.D.SetBrokers(t, verification, "false")
	AwaitLevel(t, p.S, p.D, soon, "t")
	Identical(t, p.S, p.D, "t")
}
