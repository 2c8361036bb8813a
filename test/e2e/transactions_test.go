package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

const verification = "transaction.partition.verification.enable"

// SetBrokers sets a dynamic default of all brokers until the test ends.
func (c *Cluster) SetBrokers(t testing.TB, key, value string) {
	t.Helper()
	alter := func(op kadm.IncrementalOp, v *string) {
		t.Helper()
		answers, err := c.adm.AlterBrokerConfigs(context.Background(), []kadm.AlterConfig{{Op: op, Name: key, Value: v}})
		must(t, err)
		for _, a := range answers {
			must(t, a.Err)
		}
	}
	alter(kadm.SetConfig, &value)
	t.Cleanup(func() { alter(kadm.DeleteConfig, nil) })
}

// Transactional is a producer of the newer (KIP-890) or the older transaction protocol.
func (c *Cluster) Transactional(t testing.TB, id string, older bool) *kgo.Client {
	t.Helper()
	versions := kversion.Stable()
	if older {
		versions.SetMaxKeyVersion(keyProduce, 11)
		versions.SetMaxKeyVersion(keyEndTxn, 4)
	}
	cl := c.Producer(t, kgo.TransactionalID(id), kgo.TransactionTimeout(5*time.Minute), kgo.MaxVersions(versions))
	t.Cleanup(cl.Close)
	return cl
}

// tangle writes to both partitions of a topic what transactions can make of a log, and leaves one transaction open.
type tangle struct {
	t         *testing.T
	c         *Cluster
	topic     string
	exact     bool // how it is mirrored
	n         int
	undecided *kgo.Client
}

// write writes n records of a kind to both partitions.
func (x *tangle) write(cl *kgo.Client, kind string, n int) error {
	var records []*kgo.Record
	for i := range n {
		x.n++
		records = append(records, &kgo.Record{Topic: x.topic, Partition: int32(i % 2), Key: fmt.Appendf(nil, "%d", x.n), Value: []byte(kind)})
	}
	return send(cl, records...)
}

// whole writes one transaction.
func (x *tangle) whole(cl *kgo.Client, kind string, n int, commit bool) error {
	return errors.Join(cl.BeginTransaction(), x.write(cl, kind, n), end(cl, commit))
}

// past has three transactions at a time, record by record in turn, among plain ones; many small ones; a producer that is
// fenced; and one transaction that stays open.
func (x *tangle) past() error {
	plain := x.c.Producer(x.t)
	defer plain.Close()
	writers := []*kgo.Client{
		x.c.Transactional(x.t, x.topic+"-newer", false), x.c.Transactional(x.t, x.topic+"-older", true), x.c.Transactional(x.t, x.topic+"-third", false),
	}
	for round := range 3 {
		for _, w := range writers {
			if err := w.BeginTransaction(); err != nil {
				return err
			}
		}
		for range 4 {
			for i, w := range writers {
				if err := errors.Join(x.write(w, decision((i+round)%3 > 0), 1+2*i), x.write(plain, "plain", 1)); err != nil {
					return err
				}
			}
		}
		for i, w := range writers {
			if err := end(w, (i+round)%3 > 0); err != nil {
				return err
			}
		}
	}
	for i := range 40 {
		if err := x.whole(writers[i%2], decision(i%5 > 0), 1, i%5 > 0); err != nil {
			return err
		}
	}
	if err := x.fence(); err != nil {
		return err
	}
	x.undecided = x.c.Transactional(x.t, x.topic+"-undecided", false)
	return errors.Join(x.undecided.BeginTransaction(), x.write(x.undecided, "undecided", 5), x.write(plain, "plain", 4))
}

func decision(commit bool) string {
	if commit {
		return "committed"
	}
	return "aborted"
}

// fence has a second producer of the same id end the transaction of the first and go on.
func (x *tangle) fence() error {
	old := x.c.Transactional(x.t, x.topic+"-fenced", false)
	if err := errors.Join(old.BeginTransaction(), x.write(old, "aborted", 4)); err != nil {
		return err
	}
	next := x.c.Transactional(x.t, x.topic+"-fenced", false)
	if err := x.whole(next, "committed", 4, true); err != nil {
		return err
	}
	if err := x.write(old, "aborted", 1); err == nil {
		return errors.New("the fenced producer writes on")
	}
	return x.whole(next, "aborted", 2, false)
}

// present goes on with the open transaction and writes others beside it.
func (x *tangle) present() error {
	other := x.c.Transactional(x.t, x.topic+"-newer", false)
	return errors.Join(x.write(x.undecided, "undecided", 3), x.whole(other, "committed", 3, true), x.whole(other, "aborted", 3, false))
}

// each runs something for all topics at once.
func each(all []*tangle, do func(*tangle) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, x := range all {
		wg.Go(func() { errs[i] = do(x) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Everything that transactions do to a log, in each mode and through a kill -9 with a transaction open. Exact: the same to
// every consumer at every moment, last stable offsets included. Committed: what is decided, as far as it is decided.
func TestTransactionModes(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	set := p.Mirror()
	set.Mirror, set.Extra = "", []string{"instance_id: one"}
	m := NewDaemon(t, set)
	m.Start()
	var all []*tangle
	add := func(name, wish, mode string) {
		p.S.Topic(t, name, 2)
		all = append(all, &tangle{t: t, c: p.S, topic: name, exact: mode == "exact"})
		m.Do("create", "--mirror", name, "--mirror-config", propertiesFile(t, "bootstrap.servers="+p.S.Bootstrap(), "topics.include="+name, "transactions="+wish))
		Eventually(t, soon, func() error { return m.wantMode(name, mode) })
	}
	add("committed", "committed", "committed")
	add("auto-committed", "auto", "committed")
	p.D.SetBrokers(t, verification, "false")
	add("exact", "exact", "exact")
	add("auto-exact", "auto", "exact")
	must(t, each(all, (*tangle).past))
	for _, x := range all {
		x.caughtUp(p)
	}
	m.Kill()
	must(t, each(all, (*tangle).present))
	m.Start()
	for _, x := range all {
		x.caughtUp(p)
	}
	must(t, each(all, func(x *tangle) error { return end(x.undecided, strings.HasPrefix(x.topic, "auto")) }))
	for _, x := range all {
		p.S.decided(t, x.topic)
		AwaitLevel(t, p.S, p.D, soon, x.topic)
		Identical(t, p.S, p.D, x.topic)
		if x.exact {
			must(t, Alike(p.S, p.D, View{Uncommitted: true}, x.topic))
		}
		m.Do("verify", "--config", m.ConfigFile(), "--mirror", x.topic, "--full")
	}
}

// caughtUp demands all that can be there while a transaction is open.
func (x *tangle) caughtUp(p Pair) {
	x.t.Helper()
	if x.exact {
		Eventually(x.t, soon, func() error { return Alike(p.S, p.D, View{Uncommitted: true}, x.topic) })
		return
	}
	source, err := p.S.Logs(context.Background(), x.topic)
	must(x.t, err)
	for i, log := range source {
		if log.Stable >= log.End {
			x.t.Fatalf("%s-%d has no open transaction", x.topic, i)
		}
		Eventually(x.t, soon, func() error { return p.D.wantEnd(x.topic, i, log.Stable) })
	}
}

// decided waits until no transaction is open: the end of one is answered before its markers are written.
func (c *Cluster) decided(t testing.TB, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		Eventually(t, soon, func() error {
			logs, err := c.Logs(context.Background(), topic)
			for i, log := range logs {
				if err == nil && log.Stable != log.End {
					err = fmt.Errorf("%s-%d ends at %d and is decided up to %d", topic, i, log.End, log.Stable)
				}
			}
			return err
		})
	}
}

// wantMode demands how a mirror treats transactions.
func (d *Daemon) wantMode(mirror, mode string) error {
	var body bytes.Buffer
	if err := d.get("/api/v1/mirrors/"+mirror, &body); err != nil {
		return err
	}
	var got struct{ TransactionsMode string }
	if err := json.Unmarshal(body.Bytes(), &got); err != nil {
		return err
	}
	if got.TransactionsMode != mode {
		return fmt.Errorf("transactions of %s are %q, want %q", mirror, got.TransactionsMode, mode)
	}
	return nil
}

// A failover with transactions open, one of which has committed at the source since: its marker was not copied, so it is
// aborted at the destination, in both partitions. Nothing else is lost, and transactional producers go on at once.
func TestFailoverWithOpenTransactions(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.D.SetBrokers(t, verification, "false")
	p.S.Topic(t, "t", 2)
	x := &tangle{t: t, c: p.S, topic: "t", exact: true}
	must(t, x.past())
	late := p.S.Transactional(t, "late", false)
	must(t, errors.Join(late.BeginTransaction(), x.write(late, "undecided", 4)))
	s := p.Proxied("t")
	s.MirrorExtra = []string{"transactions: exact"}
	m := NewDaemon(t, s)
	m.Start()
	x.caughtUp(p)
	copied, err := p.S.Logs(context.Background(), "t")
	must(t, err)
	p.S.Nodes[0].Proxy.Cut()
	must(t, end(late, true))
	m.Do("stop", "--mirror", "east", "--topics", "t")
	for i, log := range copied {
		after, err := p.D.Logs(context.Background(), "t")
		must(t, err)
		if after[i].Stable != after[i].End || after[i].End != log.End+2 { // two ABORT markers
			t.Errorf("t-%d ends at %d, the last stable offset is %d; %d were copied", i, after[i].End, after[i].Stable, log.End)
		}
		row, err := m.Partition("t", i)
		must(t, err)
		if row.LastMirrorOffset != log.End {
			t.Errorf("lastMirrorOffset of t-%d is %d, want %d", i, row.LastMirrorOffset, log.End)
		}
		must(t, withoutUndecided(p, i, log.End, after[i]))
	}
	must(t, x.whole(p.D.Transactional(t, "late", false), "new", 4, true))
}

// withoutUndecided demands that the destination's readers get what the source's get below end, but for the transactions
// that were undecided at the failover.
func withoutUndecided(p Pair, partition int32, end int64, log Log) error {
	source, copied := newReader(p.S, "t", partition, Log{Stable: end}), newReader(p.D, "t", partition, log)
	source.uncommitted = true // an open transaction holds committed readers back
	aborted := 0
	for {
		a, err := source.next()
		if err != nil {
			return err
		}
		if a != nil && (a.Attrs.IsControl() || string(a.Value) == "undecided" || string(a.Value) == "aborted") {
			aborted++
			continue
		}
		b, err := copied.next()
		if err != nil {
			return err
		}
		if a == nil && b == nil {
			break
		}
		if diff := difference(a, b); diff != "" {
			return fmt.Errorf("t-%d differs: %s", partition, diff)
		}
	}
	if aborted == 0 {
		return errors.New("nothing was undecided")
	}
	return nil
}

// check tells what the destination has to set for exact transactions, and what auto makes of it.
func TestCheckTellsWhatExactNeeds(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 1)
	s := p.Mirror("t")
	s.MirrorExtra = []string{"transactions: exact"}
	exact := NewDaemon(t, s)
	s.MirrorExtra = nil
	auto := NewDaemon(t, s)
	if r := exact.check(); r.Code != 1 || !strings.Contains(r.Out+r.Err, "set "+verification+"=false on every destination broker") {
		t.Errorf("exact: code %d\n%s%s", r.Code, r.Out, r.Err)
	}
	if r := auto.check(); r.Code != 0 || !strings.Contains(r.Out, "transactions committed (auto: "+verification+" is on") {
		t.Errorf("auto: code %d\n%s%s", r.Code, r.Out, r.Err)
	}
	p.D.SetBrokers(t, verification, "false")
	for m, want := range map[*Daemon]string{exact: "transactions exact", auto: "transactions exact (auto: all brokers allow it)"} {
		Eventually(t, soon, func() error {
			if r := m.check(); r.Code != 0 || !strings.Contains(r.Out, want) {
				return fmt.Errorf("code %d\n%s%s", r.Code, r.Out, r.Err)
			}
			return nil
		})
	}
}
