package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// readManyChunk is how many partitions one fetch of ReadMany asks for.
const readManyChunk = 64

// ReadAt is what ReadMany reads of one partition. MaxBytes is a limit of that partition.
type ReadAt struct {
	TP
	Offset   int64
	MaxBytes int32
}

// ReadMany is Read for many partitions, one fetch per leader and 64 of them, so that opts.MaxBytes bounds each of those
// answers. A broker that has reached it leaves the later partitions empty; only the first one that holds data gets a
// batch whole whatever its size. Each partition occurs once.
func (c *Cluster) ReadMany(ctx context.Context, at []ReadAt, opts ReadOptions) map[TP]FetchedPartition {
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = 1 << 20
	}
	index := make(map[TP]ReadAt, len(at))
	tps := make([]TP, 0, len(at))
	for _, a := range at {
		index[a.TP] = a
		tps = append(tps, a.TP)
	}
	return askLeaders(ctx, c, tps, ledRequest[FetchedPartition]{
		chunk:   readManyChunk,
		fail:    failedFetch,
		failure: func(f FetchedPartition) error { return f.Err },
		ask: func(ctx context.Context, broker int32, tps []located, out func(TP, FetchedPartition)) {
			resp, err := c.fetchMany(ctx, broker, tps, index, opts)
			if err != nil {
				for _, tp := range tps {
					out(tp.TP, failedFetch(err))
				}
				return
			}
			readFetched(tps, resp, out)
		},
	})
}

// fetchMany sends one fetch. Topics go by id only if all have one.
func (c *Cluster) fetchMany(ctx context.Context, broker int32, tps []located, index map[TP]ReadAt, opts ReadOptions) (*kmsg.FetchResponse, error) {
	req := newFetchRequest(FetchConfig{Isolation: opts.Isolation, MaxBytes: opts.MaxBytes})
	for topic, of := range byTopic(tps) {
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = topic, of[0].TopicID
		if of[0].TopicID.IsZero() {
			req.Version = fetchByName
		}
		for _, tp := range of {
			p := FetchPartition{
				Partition: tp.Partition, Offset: index[tp.TP].Offset, LeaderEpoch: tp.epoch,
				LastFetchedEpoch: -1, MaxBytes: index[tp.TP].MaxBytes,
			}
			t.Partitions = append(t.Partitions, fetchPartition(&p))
		}
		req.Topics = append(req.Topics, t)
	}
	answers, err := c.look(ctx, laneKey{broker, laneRead}, req)
	if err != nil {
		return nil, err
	}
	resp := answers[0].(*kmsg.FetchResponse)
	if err := kafkaError(resp.ErrorCode, nil); err != nil {
		return nil, fmt.Errorf("read %d partitions: %w", len(tps), err)
	}
	return resp, nil
}

// readFetched hands over the partitions of an answer. From version 13 on it names topics by id only.
func readFetched(tps []located, resp *kmsg.FetchResponse, out func(TP, FetchedPartition)) {
	index := indexLed(tps)
	names := map[[16]byte]string{}
	for _, tp := range tps {
		names[tp.TopicID] = tp.Topic
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		name := t.Topic
		if name == "" {
			name = names[t.TopicID]
		}
		for j := range t.Partitions {
			tp, ok := index[TopicPartition{name, t.Partitions[j].Partition}]
			if !ok {
				continue
			}
			f := fetched(&t.Partitions[j])
			f.Topic, f.TopicID = tp.Topic, tp.TopicID
			if f.Err != nil {
				f.Err = fmt.Errorf("read %s: %w", tp, f.Err)
			}
			out(tp, f)
		}
	}
}
