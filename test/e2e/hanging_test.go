package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A transaction over the state topic ends while the only broker that has a replica is away: Kafka 4 forgets its markers
// (KAFKA-20734), and the shard could never be read again. It is ended the way it was decided, and said.
func TestHangingTransactionInTheStateTopic(t *testing.T) {
	t.Parallel()
	p := Pair{SharedPair(t).S, StartCluster(t, Options{Nodes: 3, Heap: "384m"})}
	p.S.Topic(t, "t", 1)
	p.S.Send(t, nil, Numbered("t", 0, 0, 10)...)
	m := NewDaemon(t, p.Mirror("t"))
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "t")
	m.Stop()

	leader, err := p.D.Leader(context.Background(), stateTopic, 0)
	must(t, err)
	committed, aborted := p.D.transactionOver(t, leader, "committed"), p.D.transactionOver(t, leader, "aborted")
	p.D.Kill(t, int(leader))
	Eventually(t, soon, func() error {
		if now, err := p.D.Leader(context.Background(), stateTopic, 0); err == nil && now >= 0 {
			return fmt.Errorf("broker %d leads", now)
		}
		return nil
	})
	must(t, committed.EndTransaction(context.Background(), kgo.TryCommit))
	must(t, aborted.EndTransaction(context.Background(), kgo.TryAbort))
	p.D.Launch(t, int(leader))
	p.D.AwaitUp(t)
	logs, err := p.D.Logs(context.Background(), stateTopic)
	must(t, err)
	if logs[0].Stable == logs[0].End {
		t.Fatal("nothing hangs: this release of Kafka writes the markers after all")
	}

	p.S.Send(t, nil, Numbered("t", 0, 10, 10)...)
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "t")
	for _, outcome := range []string{"committed=true", "committed=false"} {
		if err := m.wantLog("hanging transaction ended", outcome, "shard=0"); err != nil {
			t.Error(err)
		}
	}
	m.Do("stop", "--mirror", "east", "--topics", "t")
}

const stateTopic = "__mirror_state"

// transactionOver begins a transaction in shard 0 of the state topic, with a record that a reader skips. Its coordinator
// is another broker than the one named.
func (c *Cluster) transactionOver(t *testing.T, not int32, name string) *kgo.Client {
	t.Helper()
	cl := c.Producer(t, kgo.TransactionalID(c.transactionalID(t, not, name)))
	t.Cleanup(cl.Close)
	must(t, cl.BeginTransaction())
	must(t, cl.ProduceSync(context.Background(), &kgo.Record{Topic: stateTopic, Key: []byte{0x7f, 0}, Value: []byte(name)}).FirstErr())
	return cl
}

// transactionalID finds an id that another broker than the one named coordinates.
func (c *Cluster) transactionalID(t *testing.T, not int32, name string) (id string) {
	t.Helper()
	Eventually(t, soon, func() error {
		for i := range 20 {
			id = fmt.Sprint(name, "-", i)
			found := c.adm.FindTxnCoordinators(context.Background(), id)[id]
			if found.Err == nil && found.NodeID != not {
				return nil
			}
		}
		return fmt.Errorf("broker %d coordinates all transactions", not)
	})
	return id
}
