package fetcher

import (
	"context"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// lookAtStill looks at partitions that were stopped while it was open what had arrived: where they ended is all that
// matters, and no source is needed for it.
func (pool *Pool) lookAtStill(ctx context.Context, parts []*part) {
	if len(parts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pool.cfg.RequestTimeout)
	defer cancel()
	names := map[*part]kafka.TP{}
	var tps []kafka.TP
	for _, p := range parts {
		p.mu.Lock()
		names[p] = p.destTP(-1)
		p.mu.Unlock()
		tps = append(tps, names[p])
	}
	ends := pool.deps.Destination.LogEnds(ctx, tps)
	now := time.Now()
	for _, p := range parts {
		p.mu.Lock()
		p.look.under = false
		switch end := ends[names[p]]; {
		case p.pipe.phase != closed || !p.unsure:
		case end.Err != nil:
			p.lookAgain(now, end.Err)
		default:
			p.sawDest(-1, end.Offset)
			p.unsure = !p.stoodStill(now, end.Offset)
		}
		p.mu.Unlock()
	}
}

// watchStill reads both sides of the partitions that are not mirrored, so that their lag stays true.
func (pool *Pool) watchStill(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pool.cfg.RequestTimeout)
	defer cancel()
	bySource := map[*source][]*part{}
	for _, p := range pool.allParts() {
		p.mu.Lock()
		if p.pipe.phase == closed && p.target.State != mirror.Stopped && !p.gone {
			bySource[p.src] = append(bySource[p.src], p)
		}
		p.mu.Unlock()
	}
	for src, parts := range bySource {
		pool.watchDestination(ctx, parts)
		pool.watchSource(ctx, src, parts)
	}
}

func (pool *Pool) watchDestination(ctx context.Context, parts []*part) {
	names := map[kafka.TP]*part{}
	for _, p := range parts {
		p.mu.Lock()
		names[p.destTP(-1)] = p
		p.mu.Unlock()
	}
	for tp, end := range pool.deps.Destination.LogEnds(ctx, keys(names)) {
		p := names[tp]
		p.mu.Lock()
		switch {
		case p.pipe.phase != closed:
		case end.Err == nil:
			p.sawDest(-1, end.Offset)
		case kafka.UnknownTopic(end.Err):
			p.lostDest()
		}
		p.mu.Unlock()
	}
}

// watchSource reads where the source's logs end: offsets have no ids, so the cluster is looked at first.
func (pool *Pool) watchSource(ctx context.Context, src *source, parts []*part) {
	cluster, err := src.cluster()
	if err != nil || !src.answeredBy(ctx, cluster) {
		return
	}
	names := map[kafka.TP]*part{}
	for _, p := range parts {
		names[kafka.TP{Topic: p.topic, Partition: p.key.Index, LeaderEpoch: -1}] = p
	}
	for tp, r := range cluster.Ranges(ctx, keys(names)) {
		p := names[tp]
		p.mu.Lock()
		if r.Err == nil && p.pipe.phase == closed {
			p.sawSource(r.LogStart, r.HighWatermark, time.Now())
		}
		p.mu.Unlock()
	}
}
