package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Partitions in one request; an answer is a few tens of bytes a partition, or a few hundred where producers are listed.
const (
	offsetsChunk   = 2000
	producersChunk = 500
)

const offsetsTimeout = 1000 // ms for brokers to find an offset; ends of logs are found at once

const (
	consumerReplica = -1
	debugReplica    = -2 // sees to the log's end, not only to the high watermark
)

// Timestamps of ListOffsets that mean a place.
const (
	latestOffset   = -1
	earliestOffset = -2
)

// OffsetResult is an offset with the leader epoch that it was found under; −1 where there is none.
type OffsetResult struct {
	Offset      int64
	LeaderEpoch int32
	Err         error
}

// RangeResult is what consumers may read of a partition.
type RangeResult struct {
	LogStart, HighWatermark, LastStable int64 // −1: unknown
	Err                                 error
}

// LogEnds reads log end offsets from the leaders: what is stored, replicated or not.
func (c *Cluster) LogEnds(ctx context.Context, tps []TP) map[TP]OffsetResult {
	return askLeaders(ctx, c, tps, ledRequest[OffsetResult]{
		chunk:   offsetsChunk,
		fail:    failedOffset,
		failure: func(r OffsetResult) error { return r.Err },
		ask: func(ctx context.Context, broker int32, tps []located, out func(TP, OffsetResult)) {
			answers, err := c.look(ctx, laneKey{broker, laneLook}, listOffsets(tps, debugReplica, latestOffset, ReadUncommitted))
			readOffsets(tps, answers, 0, err, out)
		},
	})
}

// Ranges reads log starts, high watermarks and last stable offsets, as a consumer sees them.
func (c *Cluster) Ranges(ctx context.Context, tps []TP) map[TP]RangeResult {
	return askLeaders(ctx, c, tps, ledRequest[RangeResult]{
		chunk:   offsetsChunk,
		fail:    func(err error) RangeResult { return RangeResult{-1, -1, -1, err} },
		failure: func(r RangeResult) error { return r.Err },
		ask:     c.askRanges,
	})
}

func (c *Cluster) askRanges(ctx context.Context, broker int32, tps []located, out func(TP, RangeResult)) {
	answers, err := c.look(ctx, laneKey{broker, laneLook},
		listOffsets(tps, consumerReplica, earliestOffset, ReadUncommitted),
		listOffsets(tps, consumerReplica, latestOffset, ReadUncommitted),
		listOffsets(tps, consumerReplica, latestOffset, ReadCommitted))
	ranges := make(map[TP]RangeResult, len(tps))
	for i := range 3 {
		readOffsets(tps, answers, i, err, func(tp TP, o OffsetResult) {
			r, ok := ranges[tp]
			if !ok {
				r = RangeResult{-1, -1, -1, nil}
			}
			*[]*int64{&r.LogStart, &r.HighWatermark, &r.LastStable}[i] = o.Offset
			if r.Err == nil {
				r.Err = o.Err
			}
			ranges[tp] = r
		})
	}
	for tp, r := range ranges {
		out(tp, r)
	}
}

func failedOffset(err error) OffsetResult { return OffsetResult{-1, -1, err} }

// listOffsets asks for one place of many partitions.
func listOffsets(tps []located, replica int32, place int64, isolation Isolation) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = replica, int8(isolation)
	req.TimeoutMillis = offsetsTimeout // the default of 30 s would make a silent connection seem alive for so long
	for topic, of := range byTopic(tps) {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = topic
		for _, tp := range of {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.CurrentLeaderEpoch, p.Timestamp = tp.Partition, tp.epoch, place
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// readOffsets hands over the partitions of answers[i], or err for all.
func readOffsets(tps []located, answers []kmsg.Response, i int, err error, out func(TP, OffsetResult)) {
	if err != nil {
		for _, tp := range tps {
			out(tp.TP, failedOffset(err))
		}
		return
	}
	index := indexLed(tps)
	for _, t := range answers[i].(*kmsg.ListOffsetsResponse).Topics {
		for _, p := range t.Partitions {
			tp, ok := index[TopicPartition{t.Topic, p.Partition}]
			if !ok {
				continue
			}
			r := OffsetResult{p.Offset, p.LeaderEpoch, partitionError("list offsets", tp, p.ErrorCode, nil)}
			if r.Err != nil {
				r = failedOffset(r.Err)
			}
			out(tp, r)
		}
	}
}

// partitionError says what was asked of which partition; nil for code 0.
func partitionError(op string, tp TP, code int16, message *string) error {
	if code == 0 {
		return nil
	}
	return fmt.Errorf("%s of %s: %w", op, tp, kafkaErrorOf(op, code, message))
}

// EpochQuery asks where a leader epoch ends in a log.
type EpochQuery struct {
	TP
	Epoch int32
}

// EpochEnd answers it: the log's largest epoch that is not above the one asked for, and where it ends, which is where
// the next one begins or the log's end (KIP-101). Both are −1 where the log has no such epoch.
type EpochEnd struct {
	Epoch     int32
	EndOffset int64
	Err       error
}

// EpochEnds asks the leaders by OffsetForLeaderEpoch. Each partition occurs once.
func (c *Cluster) EpochEnds(ctx context.Context, queries []EpochQuery) map[TP]EpochEnd {
	epochs := make(map[TP]int32, len(queries))
	tps := make([]TP, 0, len(queries))
	for _, q := range queries {
		epochs[q.TP] = q.Epoch
		tps = append(tps, q.TP)
	}
	return askLeaders(ctx, c, tps, ledRequest[EpochEnd]{
		chunk:   offsetsChunk,
		fail:    func(err error) EpochEnd { return EpochEnd{-1, -1, err} },
		failure: func(r EpochEnd) error { return r.Err },
		ask: func(ctx context.Context, broker int32, tps []located, out func(TP, EpochEnd)) {
			answers, err := c.look(ctx, laneKey{broker, laneLook}, epochRequest(tps, epochs))
			readEpochs(tps, answers, err, out)
		},
	})
}

func epochRequest(tps []located, epochs map[TP]int32) *kmsg.OffsetForLeaderEpochRequest {
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = debugReplica
	for topic, of := range byTopic(tps) {
		t := kmsg.NewOffsetForLeaderEpochRequestTopic()
		t.Topic = topic
		for _, tp := range of {
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = tp.Partition, tp.epoch, epochs[tp.TP]
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

func readEpochs(tps []located, answers []kmsg.Response, err error, out func(TP, EpochEnd)) {
	if err != nil {
		for _, tp := range tps {
			out(tp.TP, EpochEnd{-1, -1, err})
		}
		return
	}
	index := indexLed(tps)
	for _, t := range answers[0].(*kmsg.OffsetForLeaderEpochResponse).Topics {
		for _, p := range t.Partitions {
			if tp, ok := index[TopicPartition{t.Topic, p.Partition}]; ok {
				out(tp, EpochEnd{p.LeaderEpoch, p.EndOffset, partitionError("find leader epoch", tp, p.ErrorCode, nil)})
			}
		}
	}
}
