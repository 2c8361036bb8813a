package e2e

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// teller writes one tale into its topic, which has one partition.
type teller struct {
	*Tale
	c     *Cluster
	topic string
	story Story
	clock time.Time // rises with each roll, so that segments roll by record time
	open  []*kgo.Client
	made  []*kgo.Client
}

// acts are what can happen to a log, and how often.
var acts = []struct {
	name   string
	weight int
	fits   func(*Tale) bool
	do     func(*teller, *rand.Rand) error
}{
	{"plain", 5, nil, (*teller).plain},
	{"raw", 4, nil, (*teller).raw},
	{"huge", 1, nil, (*teller).huge},
	{"transactions", 5, nil, (*teller).transactions},
	{"many small transactions", 1, nil, (*teller).smallTransactions},
	{"open", 2, nil, (*teller).leaveOpen},
	{"close", 2, nil, (*teller).close},
	{"fence", 2, nil, (*teller).fence},
	{"churn", 6, compacted, (*teller).churn},
	{"clean", 3, compacted, (*teller).clean},
	{"trim", 2, trimmable, (*teller).trim},
	{"time type", 1, nil, (*teller).timeType},
	{"recompress", 1, nil, (*teller).recompress},
	{"pause", 1, nil, (*teller).pause},
}

func compacted(t *Tale) bool { return t.Name != "delete" && t.Name != "append time" }

func trimmable(t *Tale) bool { return t.Name != "settled" && t.Name != "living" }

func (t *teller) act(i Ingredient) error {
	for _, a := range acts {
		if a.name == i.Name {
			if err := a.do(t, t.story.rand(i.ID)); err != nil {
				return fmt.Errorf("%s, %s: %w", i.ID, i.Name, err)
			}
		}
	}
	return nil
}

// producer is a client with random habits, closed at the end of the story.
func (t *teller) producer(r *rand.Rand, opts ...kgo.Opt) (*kgo.Client, error) {
	codec := pick(r, kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression())
	base := []kgo.Opt{
		kgo.SeedBrokers(t.c.addrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics(), kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(rand.N(4 * time.Millisecond)), kgo.ProducerBatchMaxBytes(int32(pick(r, 6_000, 20_000, 1_000_000))),
	}
	cl, err := kgo.NewClient(append(base, opts...)...)
	if err == nil {
		t.made = append(t.made, cl)
	}
	return cl, err
}

func (t *teller) plain(r *rand.Rand) error {
	var opts []kgo.Opt
	if r.IntN(3) == 0 {
		opts = []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1)}
	}
	cl, err := t.producer(r, opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	for range 1 + r.IntN(8) {
		if err := send(cl, t.records(r, 1+r.IntN(pick(r, 3, 100)))...); err != nil {
			return err
		}
	}
	return nil
}

func send(cl *kgo.Client, records ...*kgo.Record) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return cl.ProduceSync(ctx, records...).FirstErr()
}

// records are odd in key, value, headers and time.
func (t *teller) records(r *rand.Rand, n int) []*kgo.Record {
	out := make([]*kgo.Record, n)
	for i := range out {
		out[i] = &kgo.Record{Topic: t.topic, Key: t.key(r), Value: value(r), Headers: headers(r), Timestamp: t.time(r)}
	}
	return out
}

func (t *teller) key(r *rand.Rand) []byte {
	switch r.IntN(6) {
	case 0:
		if !compacted(t.Tale) {
			return nil
		}
		return []byte{}
	case 1:
		return []byte{}
	case 2:
		return random(r, 1+r.IntN(40))
	}
	return fmt.Appendf(nil, "key %d", r.IntN(30))
}

func value(r *rand.Rand) []byte {
	switch r.IntN(8) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return random(r, r.IntN(4000))
	case 3:
		return []byte(strings.Repeat("again ", r.IntN(800)))
	}
	return fmt.Appendf(nil, "value %d", r.Int64())
}

func headers(r *rand.Rand) (hs []kgo.RecordHeader) {
	for range max(0, r.IntN(6)-3) {
		hs = append(hs, kgo.RecordHeader{Key: pick(r, "", "h", "a longer key"), Value: pick(r, nil, []byte{}, random(r, 9))})
	}
	return hs
}

// time is mostly now; sometimes none, long ago or far ahead.
func (t *teller) time(r *rand.Rand) time.Time {
	if r.IntN(4) > 0 || compacted(t.Tale) && r.IntN(10) > 0 {
		return t.clock
	}
	return time.UnixMilli(pick[int64](r, -1, 0, 1, 300_000_000_000, 4_102_444_800_000, 9_200_000_000_000))
}

func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// raw writes batches with headers that no producer of this cluster makes.
func (t *teller) raw(r *rand.Rand) error {
	for range 1 + r.IntN(4) {
		b := NoProducer(t.records(r, 1+r.IntN(20))...)
		b.Codec = pick(r, kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression())
		switch r.IntN(6) {
		case 0:
			b.Horizon = t.clock.UnixMilli() + r.Int64N(1e9)
		case 1:
			b.Attributes = 1 << (7 + r.IntN(8))
			b.Records[0].Timestamp = time.UnixMilli(pick[int64](r, 253_402_300_799_000, math.MaxInt64/4))
		case 2: // another cluster's producer, in the middle of its life
			b.ProducerID, b.ProducerEpoch, b.Sequence = 5_000_000_000+r.Int64N(1000), int16(r.IntN(30000)), r.Int32N(math.MaxInt32)
		case 3: // a mirror's own: this source is itself the copy of something
			b.ProducerID, b.ProducerEpoch, b.Sequence = mirrorsOwn+r.Int64N(1000), 0, r.Int32N(1000)
		case 4: // no producer id either, says the broker
			b.ProducerID, b.ProducerEpoch, b.Sequence = -2-r.Int64N(1000), int16(r.IntN(10)), r.Int32N(1000)
		}
		bytes, err := b.Encode()
		if err != nil {
			return err
		}
		if err := t.c.ProduceRaw(context.Background(), t.topic, 0, bytes); err != nil {
			return err
		}
	}
	return nil
}

// huge writes a batch near the limit, of one record or of many.
func (t *teller) huge(r *rand.Rand) error {
	b := NoProducer(&kgo.Record{Key: []byte("huge"), Value: random(r, 1<<20+r.IntN(5<<20)), Timestamp: t.clock})
	if r.IntN(2) == 0 {
		b = NoProducer(t.records(r, 1)...)
		n := 20_000
		if t.story.Fillers == "transactions" { // the cleaner makes holes of them, and each offset takes a transaction
			n = 1000
		}
		for range n {
			b.Records = append(b.Records, &kgo.Record{Key: fmt.Appendf(nil, "key %d", r.IntN(30)), Value: []byte{}, Timestamp: t.clock})
		}
		b.Codec = pick(r, kgo.NoCompression(), kgo.ZstdCompression())
	}
	bytes, err := b.Encode()
	if err != nil {
		return err
	}
	return t.c.ProduceRaw(context.Background(), t.topic, 0, bytes)
}

// churn writes the same few keys over and over, by producers that come and go: fodder for the cleaner, which empties
// batches and whole segments. Some die by tombstones.
func (t *teller) churn(r *rand.Rand) error {
	for range 1 + r.IntN(4) {
		var opts []kgo.Opt
		if r.IntN(2) == 0 {
			opts = []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1)}
		}
		cl, err := t.producer(r, opts...)
		if err != nil {
			return err
		}
		keys := 1 + r.IntN(8)
		for i := range 20 + r.IntN(60) {
			rec := &kgo.Record{Topic: t.topic, Key: fmt.Appendf(nil, "key %d", r.IntN(keys)), Value: fmt.Appendf(nil, "%d", i), Timestamp: t.clock}
			if r.IntN(8) == 0 {
				rec.Value = nil
			}
			if r.IntN(6) == 0 || i == 0 {
				err = errors.Join(err, send(cl, rec))
				continue
			}
			cl.Produce(context.Background(), rec, nil)
		}
		err = errors.Join(err, cl.Flush(context.Background()))
		cl.Close()
		if err == nil && r.IntN(2) == 0 {
			err = t.roll()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// roll begins a new segment.
func (t *teller) roll() error {
	for range 2 {
		t.clock = t.clock.Add(1500 * time.Millisecond)
		b := NoProducer(&kgo.Record{Key: []byte("roll"), Value: []byte("x"), Timestamp: t.clock})
		bytes, err := b.Encode()
		if err != nil {
			return err
		}
		if err := t.c.ProduceRaw(context.Background(), t.topic, 0, bytes); err != nil {
			return err
		}
	}
	return nil
}

// clean gives the cleaner a segment to close and time for a visit.
func (t *teller) clean(*rand.Rand) error {
	if err := t.roll(); err != nil {
		return err
	}
	time.Sleep(1500 * time.Millisecond)
	return nil
}

// trim repeats itself until all replicas have done it: a start that a leader alone has goes back with the next leader.
func (t *teller) trim(r *rand.Rand) error {
	part := pick(r, 1, r.Float64(), 0.5)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		err := t.trimOnce(part)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

func (t *teller) trimOnce(part float64) error {
	logs, err := t.c.Logs(context.Background(), t.topic)
	if err != nil {
		return err
	}
	span := float64(logs[0].End - logs[0].Start)
	o := kadm.Offsets{}
	o.AddOffset(t.topic, 0, logs[0].Start+int64(span*part), -1)
	gone, err := t.c.adm.DeleteRecords(context.Background(), o)
	return errors.Join(err, gone.Error())
}

// timeType changes who stamps the records that follow.
func (t *teller) timeType(r *rand.Rand) error {
	return t.c.Alter(t.topic, "message.timestamp.type", pick(r, "LogAppendTime", "CreateTime"))
}

// recompress changes what the source's broker makes of the batches that follow.
func (t *teller) recompress(r *rand.Rand) error {
	return t.c.Alter(t.topic, "compression.type", pick(r, "producer", "gzip", "lz4", "zstd", "snappy", "uncompressed"))
}

func (t *teller) pause(r *rand.Rand) error {
	time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
	return nil
}

// Alter sets keys of a topic, given in pairs.
func (c *Cluster) Alter(topic string, pairs ...string) error {
	var alter []kadm.AlterConfig
	for i := 0; i+1 < len(pairs); i += 2 {
		alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: pairs[i], Value: &pairs[i+1]})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	answers, err := c.adm.AlterTopicConfigs(ctx, alter, topic)
	for _, a := range answers {
		err = errors.Join(err, a.Err)
	}
	return err
}
