package compare

import (
	"context"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// side is one cluster as this package sees it.
type side interface {
	// bounds asks the leaders, many partitions in a request. Every partition asked is in the answer.
	bounds(ctx context.Context, tps []kafka.TP) map[kafka.TP]bounds
	// read fetches once, from all positions of one isolation level. Answers are in the order of the positions and belong
	// to the caller. A broker may leave partitions empty to stay within limit bytes; a single one gets at least a batch.
	read(ctx context.Context, at []position, limit int32) []chunk
	// facts are the questions that are seldom asked.
	facts
}

// facts are what is asked about single partitions when bounds and records leave a doubt.
type facts interface {
	// compacted reports whether the topic's cleanup policy includes compaction.
	compacted(ctx context.Context, topic string) (bool, error)
	// epochEnd is where leader epoch ended at the leader; −1: it knows none so old.
	epochEnd(ctx context.Context, tp kafka.TP, epoch int32) (int64, error)
	// nativeTxn describes a transaction that a client of this cluster has open; "": there is none.
	nativeTxn(ctx context.Context, tp kafka.TP) (string, error)
}

// bounds are the limits of a log.
type bounds struct {
	start int64 // log start offset
	lso   int64 // last stable offset
	hw    int64 // high watermark
	leo   int64 // log end offset at the leader; ≥ hw
	err   error
}

// position is where a read begins.
type position struct {
	tp        kafka.TP
	offset    int64
	committed bool // read_committed
	maxBytes  int32
}

// chunk is the answer to a position: whole batches, perhaps a cut-off one at the end.
type chunk struct {
	bytes   []byte
	aborted []kafka.AbortedTxn // by first offset
	limit   int64              // what the broker could have given: LSO or high watermark; −1: unknown
	err     error
}

// pair is one partition on both sides.
type pair struct {
	src, dst     side
	srcTP, dstTP kafka.TP
	codec        recordbatch.Codec
	s, d         bounds
	epoch        int32            // a leader epoch that the source has had; −1: unknown
	of           mirror.Partition // under whose identities this mirror writes
	goesOn       bool             // the mirror goes on: what the destination held was compared when it began
	shared       int64            // both logs are known to be one up to here, and from here on only mirrors have copied; −1: unknown
	met          int64            // both logs have met again at this offset, so that they had all before in common; −1: not seen yet
	compact      *bool            // the source topic is compacted; nil: not asked yet
}

func newPair(src, dst side, codec recordbatch.Codec, t mirror.Target) *pair {
	var compact *bool
	if t.Compacted {
		compact = &t.Compacted
	}
	return &pair{
		compact: compact, src: src, dst: dst, codec: codec, epoch: t.Source.LeaderEpoch, of: t.Partition, shared: t.Compared - 1, met: -1,
		srcTP: kafka.TP{Topic: t.Topic, TopicID: t.TopicID, Partition: t.Index, LeaderEpoch: -1},
		dstTP: kafka.TP{Topic: t.Topic, TopicID: t.DestinationID, Partition: t.Index, LeaderEpoch: -1},
	}
}

// low is the first offset that both sides hold.
func (p *pair) low() int64 { return max(p.s.start, p.d.start) }

// high is the offset after the last one that a consumer can read on both sides.
func (p *pair) high() int64 { return min(p.s.hw, p.d.hw) }

// decided is the offset below which all transactions are decided on both sides.
func (p *pair) decided() int64 { return min(p.s.lso, p.d.lso) }

// isCompacted reports whether the source compacts the topic, or is known to have done so: it is asked once. A record that only one side holds is no difference then. Cleaning at the destination
// alone excuses nothing: it is how a copy loses records.
func (p *pair) isCompacted(ctx context.Context) (bool, error) {
	if p.compact != nil {
		return *p.compact, nil
	}
	is, err := p.src.compacted(ctx, p.srcTP.Topic)
	if err != nil {
		return false, err
	}
	p.compact = &is
	return is, nil
}

// refresh asks for the bounds of both sides again.
func (p *pair) refresh(ctx context.Context) error {
	p.s = p.src.bounds(ctx, []kafka.TP{p.srcTP})[p.srcTP]
	p.d = p.dst.bounds(ctx, []kafka.TP{p.dstTP})[p.dstTP]
	return p.boundsErr()
}

func (p *pair) boundsErr() error {
	if p.s.err != nil {
		return p.s.err
	}
	return p.d.err
}
