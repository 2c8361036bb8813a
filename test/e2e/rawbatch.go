package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// RawBatch is a record batch of the newest format with a header of one's own, for logs that no client writes. Attributes
// are added to those that follow from Codec. A delete horizon (bit 6) puts Horizon where the first timestamp belongs.
type RawBatch struct {
	Attributes    int16
	Codec         kgo.CompressionCodec
	Horizon       int64 // 0: none
	ProducerID    int64
	ProducerEpoch int16
	Sequence      int32
	Records       []*kgo.Record // offsets do not count
}

// NoProducer is the RawBatch header of a producer that is not idempotent.
func NoProducer(records ...*kgo.Record) RawBatch {
	return RawBatch{Codec: kgo.NoCompression(), ProducerID: -1, ProducerEpoch: -1, Sequence: -1, Records: records}
}

const deleteHorizon = 0x40

// Encode makes the bytes.
func (b RawBatch) Encode() ([]byte, error) {
	first := b.Records[0].Timestamp.UnixMilli()
	if b.Horizon != 0 {
		first, b.Attributes = b.Horizon, b.Attributes|deleteHorizon
	}
	most, body := b.Records[0].Timestamp.UnixMilli(), []byte(nil)
	for i, r := range b.Records {
		most = max(most, r.Timestamp.UnixMilli())
		body = append(body, rawRecord(r, int32(i), first)...)
	}
	packed, codec, err := pack(b.Codec, body)
	if err != nil {
		return nil, err
	}
	rb := kmsg.RecordBatch{
		Length: int32(49 + len(packed)), PartitionLeaderEpoch: -1, Magic: 2, Attributes: b.Attributes | codec,
		LastOffsetDelta: int32(len(b.Records) - 1), FirstTimestamp: first, MaxTimestamp: most, ProducerID: b.ProducerID,
		ProducerEpoch: b.ProducerEpoch, FirstSequence: b.Sequence, NumRecords: int32(len(b.Records)), Records: packed,
	}
	out := rb.AppendTo(nil)
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	return out, nil
}

func pack(codec kgo.CompressionCodec, body []byte) ([]byte, int16, error) {
	zip, err := kgo.DefaultCompressor(codec)
	if zip == nil || err != nil {
		return body, 0, err
	}
	packed, kind := zip.Compress(new(bytes.Buffer), body)
	return packed, int16(kind), nil
}

func rawRecord(r *kgo.Record, delta int32, first int64) []byte {
	kr := kmsg.Record{TimestampDelta64: r.Timestamp.UnixMilli() - first, OffsetDelta: delta, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		kr.Headers = append(kr.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
	}
	body := kr.AppendTo(nil) // begins with a length of 0
	return append(binary.AppendVarint(nil, int64(len(body)-1)), body[1:]...)
}

// ProduceRaw appends one batch as it is, at the leader, wherever that moves to.
func (c *Cluster) ProduceRaw(ctx context.Context, topic string, partition int32, batch []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		err := c.produceRaw(ctx, topic, partition, batch)
		if !errors.Is(err, kerr.NotLeaderForPartition) || ctx.Err() != nil {
			return err
		}
	}
}

func (c *Cluster) produceRaw(ctx context.Context, topic string, partition int32, batch []byte) error {
	leader, err := c.Leader(ctx, topic, partition)
	if err != nil {
		return err
	}
	part := kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = partition, batch
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{part}}}
	resp, err := c.cl.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return err
	}
	answer := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		detail := ""
		if answer.ErrorMessage != nil {
			detail = *answer.ErrorMessage
		}
		return fmt.Errorf("produce a raw batch to %s-%d: %w %s", topic, partition, err, detail)
	}
	return nil
}

// magic is the message format of the first batch of partition 0.
func (c *Cluster) magic(t testing.TB, topic string) int8 {
	t.Helper()
	logs, err := c.Logs(context.Background(), topic)
	must(t, err)
	got, err := newReader(c, topic, 0, logs[0]).ask()
	must(t, err)
	return int8(got.RecordBatches[16])
}
