package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// forgotten waits until the leaders of a topic remember no producer of it.
func (c *Cluster) forgotten(t *testing.T, topic string, partitions int32) {
	t.Helper()
	set := kadm.TopicsSet{}
	for i := range partitions {
		set.Add(topic, i)
	}
	Eventually(t, 20*time.Second, func() error {
		described, err := c.adm.DescribeProducers(context.Background(), set)
		if err != nil {
			return err
		}
		for _, p := range described.SortedProducers() {
			return fmt.Errorf("%s-%d remembers producer %d", p.Topic, p.Partition, p.ProducerID)
		}
		return nil
	})
}

// Transactions as they are, of producers that the destination forgets between any two of them, since their records are
// older than producer.id.expiration.ms; answers are lost on top. Sequences go on where the broker has no memory of them,
// an open transaction is never forgotten, and nothing is doubled (protocol R4, R6, R14).
func TestR4_TransactionsOlderThanProducerIDExpiration(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.D = StartCluster(t, Options{Props: map[string]string{
		"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "200", verification: "false",
	}})
	p.S.Topic(t, "old", 2, "retention.ms", "-1")
	set := p.Proxied("old")
	set.MirrorExtra = []string{"transactions: exact"}
	m := NewDaemon(t, set)
	m.Start()
	x := &aged{t: t, cl: p.S.Transactional(t, "aged", false), plain: p.S.Producer(t)}
	defer x.plain.Close()
	for round, lost := range []int16{keyProduce, keyWriteTxnMarkers, -1} { // each doubt takes seconds to clear
		p.D.Nodes[0].Proxy.Swallow(lost, 1)
		for i := range 3 {
			x.transaction((round+i)%3 > 0)
		}
		p.S.decided(t, "old")
		AwaitLevel(t, p.S, p.D, soon, "old")
		p.D.forgotten(t, "old", 2)
	}
	must(t, x.cl.BeginTransaction())
	x.write(x.cl, 3)
	AwaitLevel(t, p.S, p.D, soon, "old")
	x.write(x.cl, 3)
	must(t, end(x.cl, true))
	p.S.decided(t, "old")
	AwaitLevel(t, p.S, p.D, soon, "old")
	Identical(t, p.S, p.D, "old")
	must(t, Alike(p.S, p.D, View{Uncommitted: true}, "old"))
	m.Do("verify", "--config", m.ConfigFile(), "--mirror", "east", "--full")
}

// aged writes records of a year ago.
type aged struct {
	t         *testing.T
	cl, plain *kgo.Client
	n         int
}

func (x *aged) transaction(commit bool) {
	x.t.Helper()
	must(x.t, x.cl.BeginTransaction())
	x.write(x.cl, 3)
	x.write(x.plain, 2)
	x.write(x.cl, 1)
	must(x.t, end(x.cl, commit))
}

func (x *aged) write(cl *kgo.Client, n int) {
	x.t.Helper()
	for partition := range int32(2) {
		records := Numbered("old", partition, x.n, n)
		for _, r := range records {
			r.Timestamp = time.Now().AddDate(-1, 0, 0)
		}
		must(x.t, send(cl, records...))
	}
	x.n += n
}
