package fetcher

import (
	"context"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/recordbatch"
)

// lookAtTail reads a partition alone, twice: if the source tells of offsets that it cannot give, they are a hole.
func (pool *Pool) lookAtTail(ctx context.Context, p *part) {
	p.mu.Lock()
	tp, at, ok := p.sourceTP(-1), p.pipe.tail, p.pipe.phase == running && !p.tailing
	p.tailing = p.tailing || ok
	p.mu.Unlock()
	if !ok {
		return
	}
	pool.workers.Go(func() {
		bound := pool.emptyTail(ctx, p, tp, at)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tailing = false
		if p.pipe.phase != running || p.pipe.tail != at || p.thread == nil {
			return
		}
		if bound > at {
			arrived := int64(time.Since(pool.began))
			p.push([]item{{kind: hole, reason: compacted, from: at, to: bound, maxTime: -1, epoch: -1, arrived: arrived}})
			p.offer()
		}
		p.thread.touch(p)
	})
}

// emptyTail gives the offset up to which nothing is left; at: there is something, or it is not certain.
func (pool *Pool) emptyTail(ctx context.Context, p *part, tp kafka.TP, at int64) (bound int64) {
	ctx, cancel := context.WithTimeout(ctx, pool.cfg.RequestTimeout)
	defer cancel()
	cluster, err := p.src.cluster()
	if err != nil {
		return at
	}
	opts := kafka.ReadOptions{MaxBytes: pool.cfg.PartitionMaxBytes}
	if !p.src.exact() {
		opts.Isolation = kafka.ReadCommitted
	}
	for i := range 2 {
		f, err := cluster.Read(ctx, tp, at, opts)
		if err != nil || !nothingAbove(f.Bytes, at) {
			return at
		}
		if end := p.src.bound(&f); i == 0 || end < bound {
			bound = end
		}
	}
	return max(bound, at)
}

// nothingAbove: an answer without a batch that reaches an offset.
func nothingAbove(b []byte, at int64) bool {
	for len(b) > 0 {
		batch, rest, err := recordbatch.Cut(b)
		if err != nil || batch.NextOffset() > at {
			return false
		}
		b = rest
	}
	return true
}
