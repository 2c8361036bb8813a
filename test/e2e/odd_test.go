package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"mirrord/internal/recordbatch"
)

const never = "9223372036854775807"

// Records at the edges of what a record may be: times that are none, long ago, far ahead or not a clock's at all; keys,
// values and header values that are null and that are empty; time of the append; a delete horizon.
func TestOddRecords(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "times", 1, "message.timestamp.after.max.ms", never, "retention.ms", "-1")
	p.S.Topic(t, "empty", 1)
	p.S.Topic(t, "stamped", 1, "message.timestamp.type", "LogAppendTime")
	p.S.Topic(t, "horizon", 1, "message.timestamp.after.max.ms", never, "retention.ms", "-1")
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.ZstdCompression()} {
		p.S.raw(t, "times", codec, 0, timed(-1, 0, 1, 300_000_000_000, 253_402_300_799_000, math.MaxInt64/4)...)
		for _, millis := range []int64{-1, 0, math.MaxInt64 / 4} {
			p.S.raw(t, "times", codec, 0, timed(millis)...)
		}
		p.S.raw(t, "empty", codec, 0, empties()...)
		p.S.raw(t, "stamped", codec, 0, timed(-1, 0, 253_402_300_799_000)...)
		p.S.raw(t, "horizon", codec, 1_700_000_000_000, timed(1_600_000_000_000, 1_600_000_000_500, -1)...)
	}
	topics := []string{"times", "empty", "stamped", "horizon"}
	m := NewDaemon(t, p.Mirror(topics...))
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, topics...)
	Identical(t, p.S, p.D, topics...)
	sameBatches(t, p, "times", "empty", "horizon")
	m.Do("verify", "--config", m.ConfigFile(), "--mirror", "east", "--full")
	if err := p.D.wantSettings("stamped", "message.timestamp.type", "CreateTime"); err != nil {
		t.Error(err)
	}
}

// raw appends one batch; a horizon of 0 is none.
func (c *Cluster) raw(t testing.TB, topic string, codec kgo.CompressionCodec, horizon int64, records ...*kgo.Record) {
	t.Helper()
	b := NoProducer(records...)
	b.Codec, b.Horizon = codec, horizon
	encoded, err := b.Encode()
	must(t, err)
	must(t, c.ProduceRaw(context.Background(), topic, 0, encoded))
}

func timed(millis ...int64) (all []*kgo.Record) {
	for i, at := range millis {
		all = append(all, &kgo.Record{Key: fmt.Appendf(nil, "%d", i), Value: []byte("v"), Timestamp: time.UnixMilli(at)})
	}
	return all
}

func empties() (all []*kgo.Record) {
	for _, key := range [][]byte{nil, {}} {
		for _, value := range [][]byte{nil, {}} {
			for _, headers := range [][]kgo.RecordHeader{nil, {{Key: "", Value: nil}}, {{Key: "", Value: []byte{}}, {Key: "twice"}, {Key: "twice", Value: []byte{0}}}} {
				all = append(all, &kgo.Record{Key: key, Value: value, Headers: headers, Timestamp: time.Now()})
			}
		}
	}
	return all
}

// sameBatches demands the same batches on both sides, but for what a destination writes itself: the identity and the
// leader epoch. Neighbours that were joined are no longer the same.
func sameBatches(t *testing.T, p Pair, topics ...string) {
	t.Helper()
	for _, topic := range topics {
		source, copied := byBase(batchesFrom(t, p.S, topic, 0)), byBase(batchesFrom(t, p.D, topic, 0))
		for base, b := range source {
			c := copied[base]
			if c == nil || c.Count() != b.Count() { // joined
				continue
			}
			if c.Attributes() != b.Attributes() || c.FirstTimestamp() != b.FirstTimestamp() || c.MaxTimestamp() != b.MaxTimestamp() {
				t.Errorf("%s: the batch at %d has attributes %#x, times %d to %d; at the source %#x, %d to %d", topic, base,
					c.Attributes(), c.FirstTimestamp(), c.MaxTimestamp(), b.Attributes(), b.FirstTimestamp(), b.MaxTimestamp())
			}
		}
	}
}

func byBase(all []recordbatch.Batch) map[int64]recordbatch.Batch {
	by := map[int64]recordbatch.Batch{}
	for _, b := range all {
		by[b.BaseOffset()] = b
	}
	return by
}

// Holes where a log ends: an aborted transaction in committed mode, and records deleted up to the end.
func TestHolesAtTheEnds(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	x := newTxns(t, p.S)
	for _, topic := range []string{"aborted", "emptied", "both"} {
		p.S.Topic(t, topic, 1)
		p.S.Send(t, nil, Numbered(topic, 0, 0, 20)...)
		x.run(t, topic, 0, 1, topic == "emptied")
	}
	p.S.decided(t, "aborted", "emptied", "both")
	ends := map[string]int64{}
	for topic := range map[string]bool{"emptied": true, "both": true} {
		logs, err := p.S.Logs(context.Background(), topic)
		must(t, err)
		ends[topic] = logs[0].End
		p.S.trim(t, topic, 0, logs[0].End)
	}
	set := p.Mirror("aborted", "emptied", "both")
	set.MirrorExtra = []string{"transactions: committed"}
	m := NewDaemon(t, set)
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "aborted", "emptied", "both")
	for topic, end := range ends {
		must(t, p.D.wantStart(topic, 0, end))
	}
	Identical(t, p.S, p.D, "aborted", "emptied", "both")
	for topic := range map[string]bool{"aborted": true, "emptied": true, "both": true} {
		p.S.Send(t, nil, Numbered(topic, 0, 50, 5)...)
		x.run(t, topic, 0, 7, false)
	}
	p.S.decided(t, "aborted", "emptied", "both")
	AwaitLevel(t, p.S, p.D, soon, "aborted", "emptied", "both")
	Identical(t, p.S, p.D, "aborted", "emptied", "both")
	m.Do("verify", "--config", m.ConfigFile(), "--mirror", "east", "--full")
}

// Batches beyond what the destination's topic takes today, since the source took more when they were written: a huge one, and
// one that is larger than a segment. Its limits are raised for them, and are the source's again after that.
func TestBatchesAboveTheDestinationsLimits(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	huge := make([]byte, 24<<20)
	_, _ = rand.Read(huge)
	p.S.Topic(t, "huge", 1, "max.message.bytes", "40000000")
	p.S.raw(t, "huge", kgo.NoCompression(), 0, &kgo.Record{Value: huge, Timestamp: time.Now()})
	p.S.Topic(t, "segment", 2, "max.message.bytes", "4000000")
	p.S.Send(t, nil, Numbered("segment", 0, 0, 3)...)
	p.S.raw(t, "segment", kgo.NoCompression(), 0, &kgo.Record{Value: huge[:3<<20], Timestamp: time.Now()})
	p.S.Send(t, nil, append(Numbered("segment", 0, 3, 3), Numbered("segment", 1, 0, 3)...)...)
	p.S.Set(t, "segment", "segment.bytes", "1048576", "max.message.bytes", "1000000")
	m := NewDaemon(t, p.Mirror("huge", "segment"))
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "huge", "segment")
	Identical(t, p.S, p.D, "huge", "segment")
	Eventually(t, soon, func() error {
		return p.D.wantSettings("segment", "segment.bytes", "1048576", "max.message.bytes", "1000000")
	})
	m.Await("MIRRORING", soon, "huge", "segment")
	p.S.Send(t, nil, Numbered("segment", 0, 6, 3)...)
	AwaitLevel(t, p.S, p.D, soon, "segment")
}

// A limit that mirrord may not raise: the partition with the batch fails alone and says what is to be done; it goes on by
// itself once the right is granted.
func TestBatchAboveALimitThatMayNotBeRaised(t *testing.T) {
	t.Parallel()
	p := GuardedPair(t)
	on := map[string]*Cluster{"source": p.S, "destination": p.D}
	for _, r := range documentedRights(t) {
		on[r.cluster].Grant(t, r.rule(Limited))
	}
	p.S.Topic(t, "big", 2)
	p.S.Send(t, nil, Numbered("big", 0, 0, 3)...)
	set := p.As(t, Limited, "big")
	set.Retry = "max_backoff: 1s"
	m := NewDaemon(t, set)
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "big")
	denied := "DENY ALTER_CONFIGS User:" + Limited + " TOPIC LITERAL big"
	p.D.Grant(t, denied)
	p.S.Set(t, "big", "max.message.bytes", "5000000")
	value := make([]byte, 3<<20)
	_, _ = rand.Read(value)
	p.S.raw(t, "big", kgo.NoCompression(), 0, &kgo.Record{Value: value, Timestamp: time.Now()})
	p.S.Send(t, nil, append(Numbered("big", 0, 3, 3), Numbered("big", 1, 0, 3)...)...)
	Eventually(t, soon, func() error {
		return m.wantState("big", 0, "FAILED", "larger than the destination topic's max.message.bytes")
	})
	Eventually(t, soon, func() error { return m.wantState("big", 0, "FAILED", "of the destination topic to 3") })
	Eventually(t, soon, func() error { return sameEnd(p, "big", 1) })
	must(t, m.wantState("big", 1, "MIRRORING", ""))
	must(t, p.D.wantEnd("big", 0, 3))
	p.D.Revoke(t, denied)
	AwaitLevel(t, p.S, p.D, soon, "big")
	Identical(t, p.S, p.D, "big")
}
