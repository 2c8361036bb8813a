package fetcher

import (
	"context"
	"fmt"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// findOrphans looks, before a lost range is filled in exact mode, for transactions that are open on the destination and
// have ended at the source: their markers expired with the range, and nothing else would ever end them. No lock is held.
func (l *looking) findOrphans(ctx context.Context, p *part) error {
	at, r := l.at[p], l.ranges[p]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.look.orphans = nil
	if !p.plan.exact || at.Err != nil || r.Err != nil || at.LogEnd >= r.LogStart || len(openMirrored(at.Producers)) == 0 {
		return nil
	}
	tp, slot := p.sourceTP(-1), p.plan.slot
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, l.pool.cfg.RequestTimeout)
	there := l.source.Producers(ctx, []kafka.TP{tp})[tp]
	cancel()
	p.mu.Lock()
	if there.Err != nil && !kafka.UnsupportedVersion(there.Err) {
		return fmt.Errorf("source: %w", there.Err)
	}
	p.look.orphans = orphans(openMirrored(at.Producers), there.Producers, slot)
	return nil
}

// openMirrored are the mirrored transactions that are open.
func openMirrored(producers []kafka.Producer) (open []kafka.Producer) {
	for _, pr := range producers {
		if pr.TxnStart >= 0 && mirror.MirroredProducer(pr.ID) {
			open = append(open, pr)
		}
	}
	return open
}

// orphans are those of the open transactions of the destination that are not open at the source. Offsets are the same on
// both sides, so a producer's transaction that begins later there is another one.
func orphans(open, source []kafka.Producer, slot int8) (gone []producer) {
	began := map[int64]int64{}
	for _, pr := range source {
		if id, err := shiftProducer(pr.ID, slot); err == nil && pr.TxnStart >= 0 {
			began[id] = pr.TxnStart
		}
	}
	for _, pr := range open {
		if start, same := began[pr.ID]; !same || start > pr.TxnStart {
			gone = append(gone, producer{pr.ID, pr.Epoch})
		}
	}
	return gone
}

// lostItems fill a lost range: with ABORT markers for the transactions whose own markers lay in it, and a hole. What is
// aborted lies below the source's log start and is trimmed on the destination, too.
func (p *part) lostItems(from, to int64) (items []item) {
	for _, owner := range p.look.orphans[:min(int64(len(p.look.orphans)), to-from)] {
		items = append(items, item{kind: ending, from: from, to: from + 1, maxTime: -1, epoch: -1, owner: owner})
		from++
	}
	if from < to {
		items = append(items, item{kind: hole, reason: lost, from: from, to: to, maxTime: -1, epoch: -1})
	}
	return items
}
