package kafka

import (
	"encoding/binary"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

// Produce versions: from 13 on topics go by id (KIP-516); up to 11 transactional batches are taken as they are
// (KIP-890: later ones ask the transaction coordinator).
const (
	produceByID          = 13
	produceByName        = 12
	produceTransactional = 11
)

// ProduceRequest writes batches with acks=all, exactly one per partition. A partition occurs once.
//
// Batches belong to the connection until the call has ended: their bytes go to the socket as they lie there.
type ProduceRequest struct {
	TransactionalID *string       // set: batches may be transactional, all of one producer id and epoch
	Timeout         time.Duration // for the replicas to have it
	Topics          []ProduceTopic

	version int16
}

// ProduceTopic holds the batches for one topic. With an id, and a broker that serves ids, another topic of the same
// name is never written.
type ProduceTopic struct {
	Name       string
	ID         mirror.TopicID // zero: by name
	Partitions []ProducePartition
}

// ProducePartition is one batch for one partition.
type ProducePartition struct {
	Index int32
	Batch []byte
}

// ProduceResult is what the broker says about one batch. With an error the offsets are −1.
type ProduceResult struct {
	Topic      string
	TopicID    mirror.TopicID
	Partition  int32
	Err        error
	BaseOffset int64
	// LogAppendTime is −1 where the topic keeps the records' own times (protocol R8).
	LogAppendTime int64
	LogStart      int64
	Leader        Leader // if the broker knows a newer one (KIP-951)
}

// Leader is a hint at who leads a partition; −1: none given.
type Leader struct {
	ID, Epoch int32
}

// ByID reports whether the connection writes topics by their ids.
func (c *Conn) ByID() bool { return c.MaxVersion(kmsg.Produce.Int16()) >= produceByID }

// SendProduce sends a Produce without copying its batches. It blocks while the broker does not read.
func (c *Conn) SendProduce(req *ProduceRequest) *Call {
	call := newCall(c.pool, c.cfg.RequestTimeout+req.Timeout)
	call.produce = req
	c.write.Lock()
	defer c.write.Unlock()
	if err := c.renewLogin(); err != nil {
		return c.refuse(call, err)
	}
	version, err := c.versions.choose(&kmsg.ProduceRequest{Version: req.cap()})
	if err != nil {
		return c.refuse(call, err)
	}
	req.version = version
	return c.send(call)
}

// cap is the newest version that means what the request means.
func (r *ProduceRequest) cap() int16 {
	if r.TransactionalID != nil {
		return produceTransactional
	}
	for _, t := range r.Topics {
		if t.ID.IsZero() {
			return produceByName
		}
	}
	return produceByID
}

// Produced waits for the end of a call of SendProduce, gives the caller's reference back and returns one result per
// batch, in the order of the request. An error is about all of them.
func (c *Call) Produced() ([]ProduceResult, error) {
	<-c.done
	defer c.Release()
	if c.err != nil {
		return nil, c.err
	}
	return c.produce.results(c.resp.(*kmsg.ProduceResponse)), nil
}

func (r *ProduceRequest) results(resp *kmsg.ProduceResponse) []ProduceResult {
	type key struct {
		name  string
		id    mirror.TopicID
		index int32
	}
	answers := map[key]*kmsg.ProduceResponseTopicPartition{}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			answers[key{t.Topic, t.TopicID, t.Partitions[j].Partition}] = &t.Partitions[j]
		}
	}
	var results []ProduceResult
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			k := key{name: t.Name, index: p.Index}
			if r.version >= produceByID {
				k = key{id: t.ID, index: p.Index}
			}
			result := produceResult(answers[k])
			result.Topic, result.TopicID, result.Partition = t.Name, t.ID, p.Index
			results = append(results, result)
		}
	}
	return results
}

func produceResult(p *kmsg.ProduceResponseTopicPartition) ProduceResult {
	if p == nil {
		return ProduceResult{Err: ErrMissing, BaseOffset: -1, LogAppendTime: -1, LogStart: -1, Leader: Leader{-1, -1}}
	}
	return ProduceResult{
		Err: kafkaErrorOf("produce", p.ErrorCode, p.ErrorMessage), BaseOffset: p.BaseOffset,
		LogAppendTime: p.LogAppendTime, LogStart: p.LogStartOffset,
		Leader: Leader{p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch},
	}
}

// writeProduce encodes everything but the batches and hands both to the socket; c.write is held.
func (c *Conn) writeProduce(r *ProduceRequest, correlation int32) error {
	e := produceEncoder{out: c.out[:0], flexible: r.version >= 9, byID: r.version >= produceByID}
	e.encode(r, c.cfg.ClientID, correlation)
	c.out = e.out
	c.pieces = e.appendPieces(c.pieces[:0])
	defer func() { clear(c.pieces[:cap(c.pieces)]) }() // hold no batch longer than its call does
	if c.tcp != nil {
		pieces := c.pieces // WriteTo consumes its receiver
		_, err := pieces.WriteTo(c.tcp)
		return err
	}
	for _, piece := range c.pieces {
		if _, err := c.buffered.Write(piece); err != nil {
			return err
		}
	}
	return c.buffered.Flush()
}

// produceEncoder lays out a Produce request with gaps where batches go.
type produceEncoder struct {
	out            []byte
	cuts           []int    // positions in out
	batches        [][]byte // what goes there
	size           int      // of all batches
	flexible, byID bool
}

func (e *produceEncoder) encode(r *ProduceRequest, clientID string, correlation int32) {
	e.out = append(e.out, 0, 0, 0, 0) // length, known at the end
	e.out = kbin.AppendInt16(e.out, kmsg.Produce.Int16())
	e.out = kbin.AppendInt16(e.out, r.version)
	e.out = kbin.AppendInt32(e.out, correlation)
	e.out = kbin.AppendNullableString(e.out, &clientID)
	e.tags()
	if e.flexible {
		e.out = kbin.AppendCompactNullableString(e.out, r.TransactionalID)
	} else {
		e.out = kbin.AppendNullableString(e.out, r.TransactionalID)
	}
	e.out = kbin.AppendInt16(e.out, -1) // acks: all
	e.out = kbin.AppendInt32(e.out, int32(r.Timeout.Milliseconds()))
	e.array(len(r.Topics))
	for i := range r.Topics {
		e.topic(&r.Topics[i])
	}
	e.tags()
	binary.BigEndian.PutUint32(e.out, uint32(len(e.out)-4+e.size))
}

func (e *produceEncoder) topic(t *ProduceTopic) {
	switch {
	case e.byID:
		e.out = append(e.out, t.ID[:]...)
	case e.flexible:
		e.out = kbin.AppendCompactString(e.out, t.Name)
	default:
		e.out = kbin.AppendString(e.out, t.Name)
	}
	e.array(len(t.Partitions))
	for _, p := range t.Partitions {
		e.out = kbin.AppendInt32(e.out, p.Index)
		if e.flexible {
			e.out = kbin.AppendUvarint(e.out, uint32(len(p.Batch))+1)
		} else {
			e.out = kbin.AppendInt32(e.out, int32(len(p.Batch)))
		}
		e.cuts, e.batches, e.size = append(e.cuts, len(e.out)), append(e.batches, p.Batch), e.size+len(p.Batch)
		e.tags()
	}
	e.tags()
}

func (e *produceEncoder) array(n int) {
	if e.flexible {
		e.out = kbin.AppendCompactArrayLen(e.out, n)
	} else {
		e.out = kbin.AppendArrayLen(e.out, n)
	}
}

func (e *produceEncoder) tags() {
	if e.flexible {
		e.out = append(e.out, 0)
	}
}

// appendPieces gives the request in order: a stretch of out, a batch, and so on.
func (e *produceEncoder) appendPieces(pieces [][]byte) [][]byte {
	at := 0
	for i, cut := range e.cuts {
		pieces = append(pieces, e.out[at:cut], e.batches[i])
		at = cut
	}
	return append(pieces, e.out[at:])
}
