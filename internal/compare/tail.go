package compare

import (
	"context"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// What Tail reads at once: an answer of tailBytes for up to tailChunk partitions from each side.
const (
	tailChunk     = 64
	tailPartition = 128 << 10
	tailBytes     = 8 << 20
)

// Tail compares the last records only, of thousands of partitions in few requests: for a mirror that goes on and only
// has to know that nobody wrote in between (protocol R7). Holes are compared too. Where that is not enough to know, and
// where a difference shows, the partition is looked into as Align does. The result is in the order of the targets.
func Tail(ctx context.Context, src, dst *kafka.Cluster, ts []mirror.Target) []Alignment {
	return tailAll(ctx, ofClusters(ctx, src, dst, ts))
}

func tailAll(ctx context.Context, open func(context.Context) []*pair) []Alignment {
	all := open(ctx)
	results := make([]Alignment, len(all))
	var ordinary, others []int
	for i, p := range all {
		results[i] = p.alignment()
		switch {
		case p.boundsErr() != nil:
			results[i].Err = p.boundsErr()
		case p.d.leo == p.d.start && p.d.leo <= p.s.leo: // nothing to compare
		case p.ordinary():
			ordinary = append(ordinary, i)
		default:
			others = append(others, i)
		}
	}
	for len(ordinary) > 0 {
		n := min(tailChunk, len(ordinary))
		others = append(others, unsure(ctx, all, ordinary[:n])...)
		ordinary = ordinary[n:]
	}
	each(len(others), func(i int) {
		p := all[others[i]]
		p.goesOn = true
		results[others[i]] = p.align(ctx, mirror.NoPosition)
	})
	return results
}

// ordinary: all that the destination holds is replicated, decided and within the source's log.
func (p *pair) ordinary() bool {
	return p.d.hw == p.d.leo && p.d.leo <= p.s.hw && p.low() < p.d.leo && p.d.leo <= p.decided()
}

// unsure compares the ends of a chunk of partitions, one read from each side, and gives those that it could not find
// equal.
func unsure(ctx context.Context, all []*pair, chunkOf []int) (rest []int) {
	srcs, dsts := make([]*stream, len(chunkOf)), make([]*stream, len(chunkOf))
	var srcAt, dstAt []position
	for k, i := range chunkOf {
		p := all[i]
		srcs[k], dsts[k] = p.streams(max(p.low(), p.d.leo-probeOffsets), p.d.leo, tailPartition)
		srcs[k].single, dsts[k].single = true, true
		srcAt, dstAt = append(srcAt, srcs[k].position()), append(dstAt, dsts[k].position())
	}
	p := all[chunkOf[0]]
	sources, destinations := p.src.read(ctx, srcAt, tailBytes), p.dst.read(ctx, dstAt, tailBytes)
	for k, i := range chunkOf {
		if !all[i].tailEqual(ctx, srcs[k], dsts[k], sources[k], destinations[k]) {
			rest = append(rest, i)
		}
	}
	return rest
}

// tailEqual reports whether one read of each side shows equal ends with at least one record in common. Whatever else it
// shows, a closer look tells.
func (p *pair) tailEqual(ctx context.Context, src, dst *stream, s, d chunk) bool {
	if s.err != nil || d.err != nil {
		return false
	}
	src.load(s)
	dst.load(d)
	seen, err := p.see(ctx, src, dst, false)
	return err == nil && seen.diff.offset < 0 && seen.common >= 0
}
