package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// topic is what the demo mirrors and how its producer writes.
type topic struct {
	name          string
	partitions    int32
	codec         kgo.CompressionCodec
	transactional bool
	trimmedTo     int64 // the log starts here before the mirror begins
}

var topics = []topic{
	{name: "orders", partitions: 4, codec: kgo.NoCompression()},
	{name: "clicks", partitions: 6, codec: kgo.Lz4Compression()},
	{name: "sensors", partitions: 2, codec: kgo.ZstdCompression()},
	{name: "payments", partitions: 2, codec: kgo.SnappyCompression(), transactional: true},
	{name: "archive", partitions: 1, codec: kgo.GzipCompression(), trimmedTo: 400},
}

func topicNames() (names []string) {
	for _, t := range topics {
		names = append(names, t.name)
	}
	return names
}

// prepare creates the topics at the source and gives each some history.
func prepare(ctx context.Context, c *cluster) error {
	for _, t := range topics {
		if _, err := c.admin.CreateTopic(ctx, t.partitions, 3, nil, t.name); err != nil {
			return fmt.Errorf("create topic %s: %w", t.name, err)
		}
		p, err := newProducer(c, t)
		if err != nil {
			return err
		}
		err = p.batch(ctx, 500)
		p.cl.Close()
		if err != nil {
			return fmt.Errorf("fill topic %s: %w", t.name, err)
		}
		if t.trimmedTo > 0 {
			if err := trim(ctx, c.admin, t); err != nil {
				return err
			}
		}
	}
	return nil
}

func trim(ctx context.Context, admin *kadm.Client, t topic) error {
	to := kadm.Offsets{}
	for p := range t.partitions {
		to.AddOffset(t.name, p, t.trimmedTo, -1)
	}
	answered, err := admin.DeleteRecords(ctx, to)
	if err == nil {
		err = answered.Error()
	}
	return err
}

// producer writes one topic; every fourth transaction of a transactional one is aborted.
type producer struct {
	t       topic
	cl      *kgo.Client
	written int
}

func newProducer(c *cluster, t topic) (*producer, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.fake.ListenAddrs()...), kgo.DefaultProduceTopic(t.name), kgo.ProducerBatchCompression(t.codec),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.DisableClientMetrics(),
	}
	if t.transactional {
		opts = append(opts, kgo.TransactionalID("demo-"+t.name))
	}
	cl, err := kgo.NewClient(opts...)
	return &producer{t: t, cl: cl}, err
}

func (p *producer) batch(ctx context.Context, n int) error {
	records := make([]*kgo.Record, n)
	for i := range records {
		p.written++
		records[i] = &kgo.Record{Key: fmt.Appendf(nil, "%s-%d", p.t.name, p.written%100), Value: fmt.Appendf(nil, `{"n":%d,"at":%d}`, p.written, time.Now().UnixMilli())}
	}
	if !p.t.transactional {
		return p.cl.ProduceSync(ctx, records...).FirstErr()
	}
	if err := p.cl.BeginTransaction(); err != nil {
		return err
	}
	if err := p.cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	return p.cl.EndTransaction(ctx, kgo.TransactionEndTry(p.written/n%4 != 3))
}

// live writes small batches until ctx ends.
func (p *producer) live(ctx context.Context) error {
	defer p.cl.Close()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			// a batch that has begun is finished, so that no transaction stays open
			if err := p.batch(context.WithoutCancel(ctx), 25); err != nil {
				return fmt.Errorf("write %s: %w", p.t.name, err)
			}
		}
	}
}
