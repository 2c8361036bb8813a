package kafka

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

// Fetch versions.
const (
	fetchByID   = 13 // topics go by id (KIP-516)
	fetchByName = 12
)

// Isolation says how far a fetch may see.
type Isolation int8

// The isolation levels.
const (
	ReadUncommitted Isolation = 0 // to the high watermark
	ReadCommitted   Isolation = 1 // to the last stable offset, with the aborted transactions listed
)

// FetchConfig holds what a fetch asks for all its partitions.
type FetchConfig struct {
	Isolation Isolation
	MaxWait   time.Duration // how long the broker may wait for MinBytes
	MinBytes  int32
	MaxBytes  int32 // of one answer; a batch that alone is larger still comes
}

// FetchPartition is what a fetch asks of one partition.
type FetchPartition struct {
	Topic     string
	TopicID   mirror.TopicID // zero: by name
	Partition int32
	Offset    int64
	// LeaderEpoch is the source's current one as known; −1: not checked.
	LeaderEpoch int32
	// LastFetchedEpoch is the leader epoch inside the last batch before Offset; −1: unknown. The broker answers with
	// Diverging if its log went another way (Fetch version 12).
	LastFetchedEpoch int32
	MaxBytes         int32
}

// FetchedPartition is one partition of an answer. Bytes and Aborted are valid until the call is released.
type FetchedPartition struct {
	Topic     string
	TopicID   mirror.TopicID
	Partition int32
	Err       error // the rest is −1 or empty then, Leader apart
	// Bytes are whole record batches and perhaps the beginning of one more. The first may begin before the offset asked.
	Bytes                               []byte
	HighWatermark, LastStable, LogStart int64 // −1: unknown
	Aborted                             []AbortedTxn
	Diverging                           mirror.Position // where the broker's log leaves ours; NoPosition: it does not
	Leader                              Leader          // if the broker knows a newer one (KIP-951)
}

// AbortedTxn is a transaction that was aborted somewhere after FirstOffset.
type AbortedTxn struct {
	ProducerID, FirstOffset int64
}

// newFetchRequest is a request without partitions and without a session.
func newFetchRequest(cfg FetchConfig) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.SessionEpoch = -1, -1
	req.IsolationLevel = int8(cfg.Isolation)
	req.MaxWaitMillis = int32(cfg.MaxWait.Milliseconds())
	req.MinBytes, req.MaxBytes = cfg.MinBytes, cfg.MaxBytes
	return req
}

func fetchPartition(p *FetchPartition) kmsg.FetchRequestTopicPartition {
	fp := kmsg.NewFetchRequestTopicPartition()
	fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes = p.Partition, p.Offset, p.MaxBytes
	fp.CurrentLeaderEpoch, fp.LastFetchedEpoch, fp.LogStartOffset = p.LeaderEpoch, p.LastFetchedEpoch, -1
	return fp
}

// fetched translates a partition of an answer. Everything in it aliases the answer.
func fetched(p *kmsg.FetchResponseTopicPartition) FetchedPartition {
	f := FetchedPartition{
		Partition: p.Partition, Err: kafkaErrorOf("fetch", p.ErrorCode, nil), Bytes: p.RecordBatches,
		HighWatermark: p.HighWatermark, LastStable: p.LastStableOffset, LogStart: p.LogStartOffset,
		Diverging: mirror.NoPosition, Leader: Leader{p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch},
	}
	if p.DivergingEpoch.EndOffset >= 0 {
		f.Diverging = mirror.Position{LeaderEpoch: p.DivergingEpoch.Epoch, Offset: p.DivergingEpoch.EndOffset}
	}
	if n := len(p.AbortedTransactions); n > 0 {
		f.Aborted = make([]AbortedTxn, 0, n)
		for _, a := range p.AbortedTransactions {
			f.Aborted = append(f.Aborted, AbortedTxn{a.ProducerID, a.FirstOffset})
		}
		slices.SortFunc(f.Aborted, func(a, b AbortedTxn) int { return int(min(max(a.FirstOffset-b.FirstOffset, -1), 1)) })
	}
	return f
}
