package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ReadOptions are the limits of one Read.
type ReadOptions struct {
	MaxBytes  int32 // 0: 1 MiB; one batch always comes whole
	Isolation Isolation
}

// Read fetches once from the leader, without waiting for data. The bytes are the caller's. At the log's end there are
// none. The result's error is returned, not in the result.
func (c *Cluster) Read(ctx context.Context, tp TP, offset int64, opts ReadOptions) (FetchedPartition, error) {
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = 1 << 20
	}
	results := askLeaders(ctx, c, []TP{tp}, ledRequest[FetchedPartition]{
		chunk:   1,
		fail:    failedFetch,
		failure: func(f FetchedPartition) error { return f.Err },
		ask: func(ctx context.Context, broker int32, tps []located, out func(TP, FetchedPartition)) {
			f, err := c.readOnce(ctx, broker, tps[0], offset, opts)
			if err != nil {
				f = failedFetch(err)
			}
			out(tp, f)
		},
	})
	f := results[tp]
	f.Topic, f.TopicID, f.Partition = tp.Topic, tp.TopicID, tp.Partition
	return f, f.Err
}

func failedFetch(err error) FetchedPartition {
	return FetchedPartition{Err: err, HighWatermark: -1, LastStable: -1, LogStart: -1, Leader: Leader{-1, -1}}
}

func (c *Cluster) readOnce(ctx context.Context, broker int32, tp located, offset int64, opts ReadOptions) (FetchedPartition, error) {
	p := FetchPartition{
		Topic: tp.Topic, TopicID: tp.TopicID, Partition: tp.Partition, Offset: offset,
		LeaderEpoch: tp.epoch, LastFetchedEpoch: -1, MaxBytes: opts.MaxBytes,
	}
	req := newFetchRequest(FetchConfig{Isolation: opts.Isolation, MaxBytes: opts.MaxBytes})
	if tp.TopicID.IsZero() {
		req.Version = fetchByName
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = p.Topic, p.TopicID
	t.Partitions = append(t.Partitions, fetchPartition(&p))
	req.Topics = append(req.Topics, t)
	answers, err := c.look(ctx, laneKey{broker, laneRead}, req)
	if err != nil {
		return FetchedPartition{}, err
	}
	resp := answers[0].(*kmsg.FetchResponse)
	if err := kafkaError(resp.ErrorCode, nil); err != nil {
		return FetchedPartition{}, fmt.Errorf("read %s at %d: %w", tp.TP, offset, err)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 || resp.Topics[0].Partitions[0].Partition != tp.Partition {
		return FetchedPartition{}, fmt.Errorf("read %s at %d: %w", tp.TP, offset, ErrMissing)
	}
	f := fetched(&resp.Topics[0].Partitions[0])
	if f.Err != nil {
		return f, fmt.Errorf("read %s at %d: %w", tp.TP, offset, f.Err)
	}
	return f, nil
}
