package mmm

import (
	"context"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// PreviewWithoutSource is the Plan as far as the destination alone tells it: what a stop now would lose by what the
// source was last seen to have. That is asked for when a failover is decided about.
func PreviewWithoutSource(ctx context.Context, dst *kafka.Cluster, view View, mirrorName string) Plan {
	p := emptyPlan(mirrorName)
	p.Problems = append(p.Problems,
		"the source was not asked: losses are as last reported, what came to the source since is not counted, and what the next refresh would change is not known")
	var topics []statestore.Topic
	for _, t := range view.Topics(mirrorName) {
		if t.Wish != mirror.Stopped {
			topics = append(topics, t)
		}
	}
	p.Loss = lossOf(ctx, dst, view, topics, nil)
	for _, g := range view.Groups(mirrorName) {
		for _, r := range g.Rows {
			if r.Status != StatusSynced && r.Status != "" {
				p.Groups = append(p.Groups, GroupLoss{g.Group, r.Topic, r.Partition, r.SourceOffset, r.DestinationOffset, r.Status, r.Reason})
			}
		}
	}
	return p
}

// unpromoted are the topics of which a stop would cut something off.
func (v preview) unpromoted() (topics []statestore.Topic) {
	for _, t := range v.loop.deps.View.Topics(v.loop.name) {
		if t.Wish != mirror.Stopped && (v.destination.same(t) || t.Wish != mirror.Mirroring) {
			topics = append(topics, t)
		}
	}
	return topics
}

// lossOf compares log ends of all partitions of topics with where the source's end now, or, without a source to ask, where
// they were last seen to.
func lossOf(ctx context.Context, dst *kafka.Cluster, view View, topics []statestore.Topic, ends func([]kafka.TP) map[kafka.TP]int64) []Loss {
	loss := []Loss{}
	var tps []kafka.TP
	parts := map[kafka.TP]mirror.Partition{}
	for _, t := range topics {
		for i := range t.Partitions {
			tp := kafka.TP{Topic: t.Name, Partition: i, LeaderEpoch: -1}
			tps = append(tps, tp)
			parts[tp] = mirror.Partition{Mirror: t.Mirror, TopicID: t.SourceID, Index: i}
		}
	}
	if len(tps) == 0 {
		return loss
	}
	here, producers := dst.Ranges(ctx, tps), dst.Producers(ctx, tps)
	if ends == nil {
		ends = func([]kafka.TP) map[kafka.TP]int64 { return reportedEnds(view, parts) }
	}
	there := ends(tps) // after the destination's: what came meanwhile is a loss too
	for _, tp := range tps {
		row := Loss{Topic: tp.Topic, Partition: tp.Partition, Records: -1}
		if end, known := there[tp]; known && here[tp].Err == nil {
			row.Records = max(0, end-here[tp].HighWatermark)
		}
		if at, _, ok := view.Report(parts[tp]); ok && row.Records != 0 {
			row.Seconds = float64(at.LagMillis) / 1000
		}
		for _, p := range producers[tp].Producers {
			if p.TxnStart >= 0 {
				row.OpenTransactions++
			}
		}
		if row.Records != 0 || row.OpenTransactions > 0 {
			loss = append(loss, row)
		}
	}
	return loss
}

// highWatermarks leaves out partitions that do not answer.
func highWatermarks(ctx context.Context, c *kafka.Cluster, tps []kafka.TP) map[kafka.TP]int64 {
	ends := map[kafka.TP]int64{}
	for tp, r := range c.Ranges(ctx, tps) {
		if r.Err == nil {
			ends[tp] = r.HighWatermark
		}
	}
	return ends
}

// reportedEnds are the source's high watermarks as last reported by owners.
func reportedEnds(view View, parts map[kafka.TP]mirror.Partition) map[kafka.TP]int64 {
	ends := map[kafka.TP]int64{}
	for tp, p := range parts {
		if at, _, ok := view.Report(p); ok && at.SourceOffset >= 0 {
			ends[tp] = at.SourceOffset
		}
	}
	return ends
}
