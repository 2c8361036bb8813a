package fetcher

import (
	"context"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// An unfinished seeding is known by the destination's log alone, whoever looks and whatever happened meanwhile: it begins
// and ends with fillers that mirrord has written. Nothing is written behind fillers before they are trimmed.

// Sweep keeps the fillers of unfinished seedings from being promoted (protocol R13): it trims them. It needs no source, may
// be repeated, and answers in the order of the targets.
func (pool *Pool) Sweep(ctx context.Context, targets []mirror.Target) []error {
	errs := make([]error, len(targets))
	tps := make([]kafka.TP, len(targets))
	for i, t := range targets {
		tps[i] = kafka.TP{Topic: t.Topic, TopicID: t.DestinationID, Partition: t.Index, LeaderEpoch: -1}
	}
	ranges := pool.deps.Destination.Ranges(ctx, tps)
	ends := pool.lastBatches(ctx, ranges)
	for i, tp := range tps {
		r := ranges[tp]
		switch {
		case kafka.UnknownTopic(r.Err) || r.Err == nil && r.LogStart >= r.HighWatermark: // nothing is there
		case r.Err != nil:
			errs[i] = r.Err
		default:
			errs[i] = pool.sweep(ctx, tp, r, ends[tp].Bytes)
		}
	}
	return errs
}

// sweep trims one partition if it holds nothing but fillers. end is its last batch, if that has been read.
func (pool *Pool) sweep(ctx context.Context, tp kafka.TP, r kafka.RangeResult, end []byte) error {
	found, err := pool.onlyFillers(ctx, tp, r.LogStart, r.HighWatermark, end)
	if err != nil || !found {
		return err
	}
	if _, err := pool.trimSeeds(ctx, tp, r.HighWatermark); err != nil {
		return mirror.Errorf(kafka.Classify(err), "%s holds the fillers of an unfinished seeding, which cannot be removed: %w", tp, err)
	}
	if end := pool.deps.Destination.LogEnds(ctx, []kafka.TP{tp})[tp]; end.Err != nil || end.Offset != r.HighWatermark {
		return endError(end, r.HighWatermark) // what has come meanwhile may be fillers, too
	}
	pool.log.Info("unfinished seeding removed", mirror.KeyTopic, tp.Topic, mirror.KeyPartition, tp.Partition, mirror.KeyFrom, r.LogStart, mirror.KeyTo, r.HighWatermark-1)
	return nil
}

// Limits of the first read of log ends. What does not fit is read again alone.
const (
	lastBatchBytes   = 64 << 10
	lastBatchesBytes = 8 << 20
)

// lastBatches reads the ends of many logs at once.
func (pool *Pool) lastBatches(ctx context.Context, ranges map[kafka.TP]kafka.RangeResult) map[kafka.TP]kafka.FetchedPartition {
	var at []kafka.ReadAt
	for tp, r := range ranges {
		if r.Err == nil && r.LogStart < r.HighWatermark {
			at = append(at, kafka.ReadAt{TP: tp, Offset: r.HighWatermark - 1, MaxBytes: lastBatchBytes})
		}
	}
	return pool.deps.Destination.ReadMany(ctx, at, kafka.ReadOptions{MaxBytes: lastBatchesBytes})
}

// onlyFillers reports whether a log begins and ends with fillers; it is not empty. end is its last batch, if that has been
// read.
func (pool *Pool) onlyFillers(ctx context.Context, tp kafka.TP, from, to int64, end []byte) (bool, error) {
	for _, offset := range []int64{to - 1, from} {
		b, _, err := recordbatch.Cut(end)
		if end = nil; err != nil || len(b) == 0 {
			if b, err = pool.readBatch(ctx, tp, offset); err != nil {
				return false, err
			}
		}
		if b.ProducerID() < mirror.IdentityProducerIDs || !recordbatch.IsFiller(b, kafka.Codec) {
			return false, nil
		}
	}
	return true, nil
}

// readBatch reads the batch that holds an offset.
func (pool *Pool) readBatch(ctx context.Context, tp kafka.TP, offset int64) (recordbatch.Batch, error) {
	f, err := pool.deps.Destination.Read(ctx, tp, offset, kafka.ReadOptions{})
	if err != nil {
		return nil, err
	}
	b, _, err := recordbatch.Cut(f.Bytes)
	if err != nil {
		return nil, mirror.Errorf(mirror.Retriable, "read %s at offset %d: %w", tp, offset, err)
	}
	return b, nil
}
