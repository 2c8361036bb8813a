package compare

import (
	"context"
	"fmt"
	"strings"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// clusterSide is a side over a real cluster.
type clusterSide struct{ c *kafka.Cluster }

func (k clusterSide) bounds(ctx context.Context, tps []kafka.TP) map[kafka.TP]bounds {
	ranges, ends := k.c.Ranges(ctx, tps), k.c.LogEnds(ctx, tps)
	all := make(map[kafka.TP]bounds, len(tps))
	for _, tp := range tps {
		r, e := ranges[tp], ends[tp]
		b := bounds{start: r.LogStart, lso: r.LastStable, hw: r.HighWatermark, leo: max(e.Offset, r.HighWatermark), err: r.Err}
		if b.err == nil {
			b.err = e.Err
		}
		all[tp] = b
	}
	return all
}

func (k clusterSide) read(ctx context.Context, at []position, limit int32) []chunk {
	reads := make([]kafka.ReadAt, 0, len(at))
	isolation := kafka.ReadUncommitted
	for _, p := range at {
		reads = append(reads, kafka.ReadAt{TP: p.tp, Offset: p.offset, MaxBytes: p.maxBytes})
		if p.committed {
			isolation = kafka.ReadCommitted
		}
	}
	answers := k.c.ReadMany(ctx, reads, kafka.ReadOptions{MaxBytes: limit, Isolation: isolation})
	chunks := make([]chunk, len(at))
	for i, p := range at {
		f := answers[p.tp]
		chunks[i] = chunk{bytes: f.Bytes, aborted: f.Aborted, limit: f.HighWatermark, err: f.Err}
		if p.committed {
			chunks[i].limit = f.LastStable
		}
	}
	return chunks
}

func (k clusterSide) compacted(ctx context.Context, topic string) (bool, error) {
	configs := k.c.TopicConfigs(ctx, topic)[topic]
	if configs.Err != nil {
		return false, fmt.Errorf("read cleanup policy of %s: %w", topic, configs.Err)
	}
	return strings.Contains(configs.Entries["cleanup.policy"].Value, "compact"), nil
}

func (k clusterSide) epochEnd(ctx context.Context, tp kafka.TP, epoch int32) (int64, error) {
	end := k.c.EpochEnds(ctx, []kafka.EpochQuery{{TP: tp, Epoch: epoch}})[tp]
	return end.EndOffset, end.Err
}

func (k clusterSide) nativeTxn(ctx context.Context, tp kafka.TP) (string, error) {
	producers := k.c.Producers(ctx, []kafka.TP{tp})[tp]
	if producers.Err != nil {
		return "", producers.Err
	}
	for _, p := range producers.Producers {
		if p.TxnStart < 0 || p.ID >= mirror.MirroredProducerIDs {
			continue
		}
		what := fmt.Sprintf("producer id %d, open from offset %d", p.ID, p.TxnStart)
		// Without the right to list transactions the producer id has to do.
		if ids, err := k.c.TransactionalIDs(ctx, []int64{p.ID}); err == nil && ids[p.ID].ID != "" {
			what = fmt.Sprintf("transactional id %q, %s", ids[p.ID].ID, what)
			if ids[p.ID].Ended() {
				what += `; its coordinator has ended it without a marker here, so it ends only by "kafka-transactions.sh abort"`
			}
		}
		return what, nil
	}
	return "", nil
}
