package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// namedVersions caps Produce and Fetch below the versions that know topics by id only.
func namedVersions() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.Produce), 12)
	v.SetMaxKeyVersion(int16(kmsg.Fetch), 12)
	return v
}

// Topic creates a topic with as many replicas as nodes, three at most, and waits for its leaders. Settings come in pairs.
func (c *Cluster) Topic(t testing.TB, name string, partitions int32, settings ...string) {
	t.Helper()
	c.Place(t, name, partitions, int16(min(3, len(c.Nodes))), settings...)
}

// Place is Topic with a number of replicas.
func (c *Cluster) Place(t testing.TB, name string, partitions int32, replicas int16, settings ...string) {
	t.Helper()
	configs := map[string]*string{}
	for i := 0; i+1 < len(settings); i += 2 {
		configs[settings[i]] = &settings[i+1]
	}
	_, err := c.adm.CreateTopic(context.Background(), partitions, replicas, configs, name)
	must(t, err)
	Eventually(t, 20*time.Second, func() error { _, err := c.Logs(context.Background(), name); return err })
}

// Send writes records in order, each to the partition it names, and waits for all of them.
func (c *Cluster) Send(t testing.TB, opts []kgo.Opt, records ...*kgo.Record) {
	t.Helper()
	cl := c.Producer(t, opts...)
	defer cl.Close()
	must(t, cl.ProduceSync(context.Background(), records...).FirstErr())
}

// Producer is a client that writes to the partitions its records name.
func (c *Cluster) Producer(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(c.addrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}, opts...)
	cl, err := kgo.NewClient(opts...)
	must(t, err)
	return cl
}

// Numbered makes n records of a partition, with keys and values that say which they are.
func Numbered(topic string, partition int32, first, n int) []*kgo.Record {
	out := make([]*kgo.Record, n)
	for i := range out {
		out[i] = &kgo.Record{Topic: topic, Partition: partition, Key: fmt.Appendf(nil, "k%d", first+i), Value: fmt.Appendf(nil, "value %d", first+i)}
	}
	return out
}

// Log is the extent of a partition: log start, high watermark, last stable offset.
type Log struct{ Start, End, Stable int64 }

// Logs are the extents of a topic's partitions.
func (c *Cluster) Logs(ctx context.Context, topic string) (map[int32]Log, error) {
	starts, err := c.adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := c.adm.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	stable, err := c.adm.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	logs := map[int32]Log{}
	for _, all := range []kadm.ListedOffsets{starts, ends, stable} {
		if err := all.Error(); err != nil {
			return nil, err
		}
	}
	for p, s := range starts[topic] {
		logs[p] = Log{s.Offset, ends[topic][p].Offset, stable[topic][p].Offset}
	}
	return logs, nil
}

// Level demands equal partitions, log starts and log ends.
func Level(ctx context.Context, s, d *Cluster, topic string) error {
	source, err := s.Logs(ctx, topic)
	if err != nil {
		return err
	}
	copied, err := d.Logs(ctx, topic)
	if err != nil {
		return err
	}
	if len(source) == 0 || len(source) != len(copied) {
		return fmt.Errorf("%s has %d partitions, source has %d", topic, len(copied), len(source))
	}
	for p, want := range source {
		if got := copied[p]; got.Start != want.Start || got.End != want.End {
			return fmt.Errorf("%s-%d is [%d, %d), source [%d, %d)", topic, p, got.Start, got.End, want.Start, want.End)
		}
	}
	return nil
}

// AwaitLevel waits for Level.
func AwaitLevel(t testing.TB, s, d *Cluster, limit time.Duration, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		Eventually(t, limit, func() error { return Level(context.Background(), s, d, topic) })
	}
}

// Identical demands that both sides are level and that a read_committed consumer gets the same records from both, null
// told from empty. It streams: neither log is held in memory.
func Identical(t testing.TB, s, d *Cluster, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		must(t, Level(context.Background(), s, d, topic))
		logs, err := s.Logs(context.Background(), topic)
		must(t, err)
		for p, log := range logs {
			must(t, identical(s, d, topic, p, log))
		}
	}
}

func identical(s, d *Cluster, topic string, p int32, log Log) error {
	source, copied := newReader(s, topic, p, log), newReader(d, topic, p, log)
	for {
		a, errA := source.next()
		b, errB := copied.next()
		if err := errors.Join(errA, errB); err != nil {
			return fmt.Errorf("read %s-%d: %w", topic, p, err)
		}
		if a == nil && b == nil {
			return nil
		}
		if diff := difference(a, b); diff != "" {
			return fmt.Errorf("%s-%d differs: %s", topic, p, diff)
		}
	}
}

func difference(a, b *kgo.Record) string {
	switch {
	case a == nil:
		return fmt.Sprintf("only the destination has offset %d", b.Offset)
	case b == nil:
		return fmt.Sprintf("only the source has offset %d", a.Offset)
	case a.Offset != b.Offset:
		return fmt.Sprintf("source goes on at %d, destination at %d", a.Offset, b.Offset)
	case !a.Timestamp.Equal(b.Timestamp):
		return fmt.Sprintf("timestamp at %d: %v, %v", a.Offset, a.Timestamp, b.Timestamp)
	case !same(a.Key, b.Key) || !same(a.Value, b.Value):
		return fmt.Sprintf("key or value at %d: %q=%q, %q=%q", a.Offset, a.Key, a.Value, b.Key, b.Value)
	case len(a.Headers) != len(b.Headers):
		return fmt.Sprintf("headers at %d", a.Offset)
	}
	for i, h := range a.Headers {
		if h.Key != b.Headers[i].Key || !same(h.Value, b.Headers[i].Value) {
			return fmt.Sprintf("header %q at %d", h.Key, a.Offset)
		}
	}
	return ""
}

func same(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

// reader streams one partition as a read_committed consumer gets it, with raw fetches, so that no consumer logic skips
// or repeats anything unseen.
type reader struct {
	c       *Cluster
	topic   string
	p       int32
	at, end int64
	unzip   kgo.Decompressor
	queue   []*kgo.Record
	// uncommitted reads all there is, control records included.
	uncommitted bool
}

func newReader(c *Cluster, topic string, p int32, log Log) *reader {
	return &reader{c: c, topic: topic, p: p, at: log.Start, end: log.Stable, unzip: kgo.DefaultDecompressor()}
}

// next is the next record, nil at the end.
func (r *reader) next() (*kgo.Record, error) {
	for empty := 0; len(r.queue) == 0; {
		if r.at >= r.end {
			return nil, nil
		}
		before := r.at
		if err := r.fetch(); err != nil {
			return nil, err
		}
		if r.at != before {
			continue
		}
		if empty++; empty > 50 {
			return nil, fmt.Errorf("nothing at offset %d though the log ends at %d", r.at, r.end)
		}
	}
	rec := r.queue[0]
	r.queue = r.queue[1:]
	return rec, nil
}

func (r *reader) fetch() error {
	rp, err := r.ask()
	if err != nil {
		return err
	}
	opts := kgo.ProcessFetchPartitionOpts{Offset: r.at, IsolationLevel: r.level(), Topic: r.topic, Partition: r.p, KeepControlRecords: r.uncommitted}
	fetched, next := kgo.ProcessFetchPartition(opts, rp, r.unzip, nil)
	for _, rec := range fetched.Records {
		if rec.Timestamp.IsZero() { // messages of magic 0 have none
			rec.Timestamp = time.UnixMilli(-1)
		}
		if rec.Offset < r.end {
			r.queue = append(r.queue, rec)
		}
	}
	r.at = next
	return fetched.Err
}

func (r *reader) level() kgo.IsolationLevel {
	if r.uncommitted {
		return kgo.ReadUncommitted()
	}
	return kgo.ReadCommitted()
}

// ask fetches what there is at the reader's offset, as the broker gives it.
func (r *reader) ask() (*kmsg.FetchResponseTopicPartition, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	leader, err := r.c.Leader(ctx, r.topic, r.p)
	if err != nil {
		return nil, err
	}
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = r.p, r.at, 4<<20
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MaxWaitMillis, req.MinBytes, req.IsolationLevel = 8<<20, 500, 1, 1
	if r.uncommitted {
		req.IsolationLevel = 0
	}
	req.Topics = []kmsg.FetchRequestTopic{{Topic: r.topic, Partitions: []kmsg.FetchRequestTopicPartition{part}}}
	resp, err := r.c.cl.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return nil, err
	}
	got := resp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return nil, err
	}
	rp := &got.Topics[0].Partitions[0]
	return rp, kerr.ErrorForCode(rp.ErrorCode)
}

// Leader asks who leads a partition now.
func (c *Cluster) Leader(ctx context.Context, topic string, p int32) (int32, error) {
	req := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = kmsg.StringPtr(topic)
	req.Topics = []kmsg.MetadataRequestTopic{mt}
	resp, err := req.RequestWith(ctx, c.cl)
	if err != nil {
		return -1, err
	}
	for _, part := range resp.Topics[0].Partitions {
		if part.Partition == p {
			return part.Leader, kerr.ErrorForCode(part.ErrorCode)
		}
	}
	return -1, fmt.Errorf("%s has no partition %d", topic, p)
}

// Size is how many bytes all replicas of a topic take.
func (c *Cluster) Size(topic string) (n int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	set := kadm.TopicsSet{}
	set.Add(topic)
	dirs, err := c.adm.DescribeAllLogDirs(ctx, set)
	if err != nil {
		return 0, err
	}
	dirs.Each(func(dir kadm.DescribedLogDir) {
		err = errors.Join(err, dir.Err)
		n += dir.Size()
	})
	return n, err
}
