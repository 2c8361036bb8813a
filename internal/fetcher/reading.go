package fetcher

import (
	"context"
	"fmt"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
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

// unseeded reports whether the destination's log has no data yet (protocol R13): it is new, all that it has are the
// fillers of an unfinished seeding, or such a seeding was trimmed when it was stopped, so that it is empty and ends before
// anything of the source that was ever mirrored.
func (l *looking) unseeded(ctx context.Context, p *part) (bool, error) {
	at, r := l.at[p], l.ranges[p]
	p.mu.Lock()
	entry, seeding, tp := p.look.entry, p.seedTo >= 0, p.destTP(-1)
	p.mu.Unlock()
	known := at.Err == nil && r.Err == nil // else decide tells
	switch {
	case seeding || !known || at.LogEnd > r.LogStart:
		return seeding, nil
	case at.LogStart == at.LogEnd:
		return at.LogEnd == 0 || !p.reached(at.LogEnd), nil
	case !entry:
		return false, nil
	}
	return l.pool.onlyFillers(ctx, tp, at.LogStart, at.LogEnd, nil)
}

// reached reports whether something of the source was mirrored below an offset: its leader epochs are on record.
func (p *part) reached(end int64) bool {
	return p.numbers.epoch.Load() >= 0 && p.numbers.epochStart.Load() < end
}

// readyToSeed prepares the topic of a partition that decide is going to seed.
func (l *looking) readyToSeed(ctx context.Context, p *part, unseeded bool) error {
	at, r := l.at[p], l.ranges[p]
	if at.Err != nil || r.Err != nil || at.LogEnd >= r.LogStart || !unseeded {
		return nil
	}
	ctx, cancel := context.WithTimeout(kafka.WithLease(ctx, l.pool.deps.Lease), 2*l.pool.cfg.RequestTimeout)
	defer cancel()
	p.mu.Lock()
	tp := p.destTP(-1)
	p.mu.Unlock()
	return l.pool.suspendCompaction(ctx, tp)
}
