package fetcher

import (
	"context"
	"fmt"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// read asks both sides, the destination first.
func (l *looking) read(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*l.pool.cfg.RequestTimeout/2)
	defer cancel()
	names := map[*part]kafka.TP{}
	topics := map[string]struct{}{}
	for _, p := range l.parts {
		p.mu.Lock()
		names[p] = p.destTP(-1)
		p.mu.Unlock()
		topics[p.topic] = struct{}{}
	}
	tps := make([]kafka.TP, 0, len(names))
	for _, tp := range names {
		tps = append(tps, tp)
	}
	if err := l.pool.initFillers(ctx, l.src, l.parts); err != nil {
		return fmt.Errorf("take over fillers: %w", err)
	}
	found := l.pool.deps.Destination.Resume(ctx, tps)
	l.at, l.ranges = map[*part]kafka.ResumePoint{}, map[*part]kafka.RangeResult{}
	for p, tp := range names {
		l.at[p] = found[tp]
	}
	if l.source, err = l.src.cluster(); err != nil {
		return err
	}
	if err = l.src.topology.refresh(ctx, l.source, keys(topics), time.Now().Add(-time.Second)); err != nil {
		return err
	}
	l.readSource(ctx)
	return nil
}

func (l *looking) readSource(ctx context.Context) {
	names := map[*part]kafka.TP{}
	var tps []kafka.TP
	for _, p := range l.parts {
		topic, at, _ := l.src.topology.find(p.topic, p.key.Index)
		p.mu.Lock()
		if p.sameSource(topic.ID) {
			p.sourceID = topic.ID
			if at.LeaderEpoch > p.sourceEpoch && p.sourceEpoch >= 0 {
				p.look.cause.source = true // protocol R6: another leader at the source meanwhile
				p.sourceMoved(at.LeaderEpoch)
			}
			if at.LeaderEpoch >= 0 {
				p.sourceEpoch = at.LeaderEpoch
			}
			names[p] = p.sourceTP(-1)
			tps = append(tps, names[p])
		} else {
			l.ranges[p] = kafka.RangeResult{Err: errOtherTopic}
		}
		p.mu.Unlock()
	}
	found := l.source.Ranges(ctx, tps)
	for p, tp := range names {
		l.ranges[p] = found[tp]
	}
}

// askedTooLarge has the destination's limit looked at, where a batch was too large; no lock is held.
func (l *looking) askedTooLarge(ctx context.Context, p *part) error {
	p.mu.Lock()
	size, t, seeding := p.look.cause.tooLarge, p.target, p.seedTo >= 0
	p.mu.Unlock()
	if size == 0 || seeding {
		return nil
	}
	err := error(mirror.Errorf(mirror.Refused, "the destination admits no batch of %d bytes", size))
	if l.pool.deps.TooLarge != nil {
		if err = l.pool.deps.TooLarge(ctx, t, size); err == nil {
			return nil
		}
	}
	return mirror.Errorf(mirror.Refused, "batch of %d bytes at offset %d is larger than the destination topic's max.message.bytes: %w", size, l.at[p].LogEnd, err).
		WithHint(fmt.Sprintf("set max.message.bytes, and segment.bytes, of the destination topic to %d or more", size))
}

// holdsFillers reports whether all that the destination has are fillers of an unfinished seeding (protocol R13).
func (l *looking) holdsFillers(ctx context.Context, p *part) bool {
	at, r := l.at[p], l.ranges[p]
	p.mu.Lock()
	entry, tp := p.look.entry, p.destTP(-1)
	p.mu.Unlock()
	if at.Err != nil || r.Err != nil || at.LogStart == at.LogEnd || at.LogEnd > r.LogStart || !entry {
		return p.isSeeding()
	}
	f, err := l.pool.deps.Destination.Read(ctx, tp, at.LogStart, kafka.ReadOptions{})
	if err != nil {
		return false
	}
	b, _, err := recordbatch.Cut(f.Bytes)
	return err == nil && recordbatch.IsFiller(b, kafka.Codec)
}

// readyToSeed prepares the topic of a partition that decide is going to seed.
func (l *looking) readyToSeed(ctx context.Context, p *part, fillers bool) error {
	at, r := l.at[p], l.ranges[p]
	if at.Err != nil || r.Err != nil || at.LogEnd >= r.LogStart || !fillers && at.LogEnd > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(kafka.WithLease(ctx, l.pool.deps.Lease), 2*l.pool.cfg.RequestTimeout)
	defer cancel()
	p.mu.Lock()
	tp := p.destTP(-1)
	p.mu.Unlock()
	return l.pool.suspendCompaction(ctx, tp)
}

func (p *part) isSeeding() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seedTo >= 0
}
