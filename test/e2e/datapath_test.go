package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Every codec, 16 partitions and a million records each, arrives as it is.
func TestEveryCodec(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	var topics []string
	for name := range codecs {
		topics = append(topics, name)
		p.S.Topic(t, name, 16)
	}
	m := NewDaemon(t, p.Mirror(topics...))
	m.Start()
	for name, codec := range codecs {
		writeMillion(t, p.S, name, codec)
	}
	AwaitLevel(t, p.S, p.D, 3*time.Minute, topics...)
	Identical(t, p.S, p.D, topics...)
}

func writeMillion(t *testing.T, c *Cluster, topic string, codec kgo.CompressionCodec) {
	t.Helper()
	cl := c.Producer(t, kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(5*time.Millisecond), kgo.MaxBufferedRecords(100_000))
	defer cl.Close()
	var failed error
	for i := range 1_000_000 {
		cl.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(i % 16), Value: fmt.Appendf(nil, "%07d", i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err
			}
		})
	}
	must(t, cl.Flush(context.Background()))
	must(t, failed)
}

// Fifty kills at random instants under load lose, double and shift nothing. A static instance id lets the next process
// take over at once, so that every life does real work.
func TestKill50(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 8)
	load := StartLoad(t, p.S, 4000, 8, "t")
	s := p.Mirror("t")
	s.Extra = []string{"instance_id: one"}
	m := NewDaemon(t, s)
	for range 50 {
		m.Launch()
		time.Sleep(200*time.Millisecond + rand.N(1800*time.Millisecond))
		m.Kill()
	}
	m.Start()
	load.Stop(t)
	AwaitLevel(t, p.S, p.D, time.Minute, "t")
	Identical(t, p.S, p.D, "t")
}

// Two instances share a mirror; each in turn is frozen until the other has taken over, and thawed with requests of its
// own still to send.
func TestTwoInstancesFrozenInTurn(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 6)
	load := StartLoad(t, p.S, 3000, 6, "t")
	s := p.Mirror("t")
	s.Extra = []string{"session_timeout: 6s"}
	pair := []*Daemon{NewDaemon(t, s), NewDaemon(t, s)}
	for _, m := range pair {
		m.Start()
	}
	for round := range 4 {
		frozen := pair[round%2]
		frozen.Freeze()
		progress(t, p, "t", 6, 30*time.Second)
		frozen.Thaw()
		progress(t, p, "t", 6, 30*time.Second)
	}
	load.Stop(t)
	AwaitLevel(t, p.S, p.D, time.Minute, "t")
	Identical(t, p.S, p.D, "t")
}

// progress waits until every partition of the destination has passed where the source stands now.
func progress(t *testing.T, p Pair, topic string, partitions int32, limit time.Duration) {
	t.Helper()
	at, err := p.S.Logs(context.Background(), topic)
	must(t, err)
	Eventually(t, limit, func() error {
		now, err := p.D.Logs(context.Background(), topic)
		if err != nil {
			return err
		}
		for i := range partitions {
			if now[i].End < at[i].End {
				return fmt.Errorf("%s-%d is at %d, source was at %d", topic, i, now[i].End, at[i].End)
			}
		}
		return nil
	})
}

// Answers to appends and markers are lost after the broker has acted on them.
func TestSwallowedAnswers(t *testing.T) {
	t.Parallel()
	for _, fillers := range []string{"markers", "transactions"} {
		t.Run(fillers, func(t *testing.T) {
			t.Parallel()
			p := SharedPair(t)
			p.S.Topic(t, "plain", 3)
			p.S.Topic(t, "aborts", 2)
			s := p.Proxied("plain", "aborts")
			s.MirrorExtra = []string{"fillers: " + fillers, "transactions: committed"}
			m := NewDaemon(t, s)
			m.Start()
			load := StartLoad(t, p.S, 1000, 3, "plain")
			proxy := p.D.Nodes[0].Proxy
			txns := newTxns(t, p.S)
			filler := map[string]int16{"markers": keyWriteTxnMarkers, "transactions": keyEndTxn}[fillers]
			for i := range 30 {
				proxy.Swallow(keyProduce, 1)
				if i%10 == 0 {
					proxy.Swallow(filler, 1)
					txns.run(t, "aborts", int32(i%2), i, i%20 == 0)
				}
				Eventually(t, 20*time.Second, func() error {
					if n := proxy.Pending(keyProduce) + proxy.Pending(filler); n > 0 {
						return fmt.Errorf("%d answers are still to be swallowed", n)
					}
					return nil
				})
			}
			load.Stop(t)
			proxy.Heal()
			AwaitLevel(t, p.S, p.D, time.Minute, "plain", "aborts")
			Identical(t, p.S, p.D, "plain", "aborts")
		})
	}
}

// txns writes transactions one after another with one transactional id.
type txns struct{ cl *kgo.Client }

func newTxns(t *testing.T, c *Cluster) *txns {
	t.Helper()
	cl := c.Producer(t, kgo.TransactionalID(fmt.Sprint("txn-", rand.Int64())))
	t.Cleanup(cl.Close)
	return &txns{cl}
}

func (x *txns) run(t *testing.T, topic string, partition int32, n int, commit bool) {
	t.Helper()
	must(t, x.cl.BeginTransaction())
	must(t, x.cl.ProduceSync(context.Background(), Numbered(topic, partition, n*10, 3)...).FirstErr())
	must(t, x.cl.EndTransaction(context.Background(), kgo.TransactionEndTry(commit)))
}

// One broker of three dies and leaders move under load, while fillers are written too.
func TestDestinationBrokersDieAndLeadersMove(t *testing.T) {
	t.Parallel()
	s := StartCluster(t, Options{})
	d := StartCluster(t, Options{Nodes: 3})
	p := Pair{s, d}
	s.Topic(t, "plain", 9)
	s.Topic(t, "aborts", 3)
	set := p.Mirror("plain", "aborts")
	set.Extra = []string{"session_timeout: 6s"}
	set.MirrorExtra = []string{"replication_factor: 3", "transactions: committed"}
	m := NewDaemon(t, set)
	m.Start()
	m.Await("MIRRORING", 30*time.Second, "plain", "aborts")
	load := StartLoad(t, s, 2000, 9, "plain")
	stop, done := make(chan struct{}), make(chan struct{})
	x := newTxns(t, s)
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				x.run(t, "aborts", int32(i%3), i, i%3 != 0)
			}
		}
	}()
	d.Kill(t, 2)
	progress(t, p, "plain", 9, 40*time.Second)
	d.Launch(t, 2)
	d.AwaitUp(t)
	progress(t, p, "aborts", 3, 40*time.Second)
	moveLeaders(t, d, "plain", "aborts")
	progress(t, p, "plain", 9, 40*time.Second)
	close(stop)
	<-done
	load.Stop(t)
	AwaitLevel(t, s, d, time.Minute, "plain", "aborts")
	Identical(t, s, d, "plain", "aborts")
}

// moveLeaders gives every partition back to its preferred leader, which moves those that a dead broker had lost.
func moveLeaders(t *testing.T, c *Cluster, topics ...string) {
	t.Helper()
	Eventually(t, 40*time.Second, func() error {
		listed, err := c.adm.ListTopics(context.Background(), topics...)
		if err != nil {
			return err
		}
		for _, topic := range listed {
			for _, part := range topic.Partitions {
				if len(part.ISR) < 3 {
					return fmt.Errorf("%s-%d has %d replicas in sync", topic.Topic, part.Partition, len(part.ISR))
				}
			}
		}
		return nil
	})
	set, err := c.adm.ListTopics(context.Background(), topics...)
	must(t, err)
	_, err = c.adm.ElectLeaders(context.Background(), 0, set.TopicsSet())
	must(t, err)
}

// Data older than producer.id.expiration.ms: the broker forgets the identity between any two batches, and answers are
// lost on top. Looking before repeating is all that helps (protocol R4, R6).
func TestR4_DataOlderThanProducerIDExpiration(t *testing.T) {
	t.Parallel()
	s := StartCluster(t, Options{})
	d := StartCluster(t, Options{Props: map[string]string{"producer.id.expiration.ms": "1000", "producer.id.expiration.check.interval.ms": "300"}})
	p := Pair{s, d}
	s.Topic(t, "old", 3, "retention.ms", "-1")
	m := NewDaemon(t, p.Proxied("old"))
	m.Start()
	yearAgo := time.Now().AddDate(-1, 0, 0)
	for i := range 40 {
		var records []*kgo.Record
		for part := range int32(3) {
			records = append(records, Numbered("old", part, i*50, 50)...)
		}
		for _, r := range records {
			r.Timestamp = yearAgo
		}
		d.Nodes[0].Proxy.Swallow(keyProduce, 1)
		s.Send(t, nil, records...)
		time.Sleep(rand.N(200 * time.Millisecond))
	}
	d.Nodes[0].Proxy.Heal()
	AwaitLevel(t, s, d, time.Minute, "old")
	Identical(t, s, d, "old")
}

// A batch larger than what the source itself would take today: its limit was lowered after the batch was written. The
// destination's limit is looked at and raised, and the partition goes on.
func TestBatchAboveTheSourcesPresentLimit(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 1, "max.message.bytes", "5000000")
	big := make([]byte, 3_000_000)
	for i := range big {
		big[i] = byte(rand.Uint32())
	}
	p.S.Send(t, []kgo.Opt{kgo.ProducerBatchMaxBytes(4_000_000)}, &kgo.Record{Topic: "t", Value: big})
	low := "1000000"
	_, err := p.S.adm.AlterTopicConfigs(context.Background(), []kadm.AlterConfig{{Name: "max.message.bytes", Value: &low}}, "t")
	must(t, err)
	p.S.Send(t, nil, Numbered("t", 0, 1, 100)...)
	m := NewDaemon(t, p.Mirror("t"))
	m.Start()
	AwaitLevel(t, p.S, p.D, 30*time.Second, "t")
	Identical(t, p.S, p.D, "t")
	m.Await("MIRRORING", 10*time.Second, "t")
}
