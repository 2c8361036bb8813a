package e2e

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/recordbatch"
)

// batchesFrom are the batches of partition 0 from an offset on, as they are stored.
func batchesFrom(t testing.TB, c *Cluster, topic string, from int64) (all []recordbatch.Batch) {
	t.Helper()
	logs, err := c.Logs(context.Background(), topic)
	must(t, err)
	for from < logs[0].End {
		next := from
		for _, b := range fetchBatches(t, c, topic, from) {
			if b.NextOffset() > from {
				all, next = append(all, b), b.NextOffset()
			}
		}
		if next == from {
			t.Fatalf("nothing at offset %d of %s", from, topic)
		}
		from = next
	}
	return all
}

// fetchBatches fetches once.
func fetchBatches(t testing.TB, c *Cluster, topic string, from int64) (all []recordbatch.Batch) {
	t.Helper()
	leader, err := c.Leader(context.Background(), topic, 0)
	must(t, err)
	part := kmsg.NewFetchRequestTopicPartition()
	part.FetchOffset, part.PartitionMaxBytes = from, 8<<20
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MaxWaitMillis, req.MinBytes = 8<<20, 500, 1
	req.Topics = []kmsg.FetchRequestTopic{{Topic: topic, Partitions: []kmsg.FetchRequestTopicPartition{part}}}
	resp, err := c.cl.Broker(int(leader)).RetriableRequest(context.Background(), req)
	must(t, err)
	answer := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	must(t, kerr.ErrorForCode(answer.ErrorCode))
	for rest := answer.RecordBatches; len(rest) > 0; {
		b, r, err := recordbatch.Cut(rest)
		if errors.Is(err, recordbatch.ErrPartial) {
			break
		}
		must(t, err)
		all, rest = append(all, b), r
	}
	return all
}
