package fetcher

import (
	"context"
	"time"

	"mirrord/internal/compare"
	"mirrord/internal/mirror"
)

// compare lets those partitions go on whose logs agree.
func (l *looking) compare(ctx context.Context, parts []*part) {
	if len(parts) == 0 {
		return
	}
	targets := make([]mirror.Target, len(parts))
	for i, p := range parts {
		p.mu.Lock()
		targets[i] = p.target
		p.mu.Unlock()
	}
	results := l.pool.deps.Tail(ctx, l.source, l.pool.deps.Destination, targets)
	now := time.Now()
	for i, p := range parts {
		p.mu.Lock()
		if l.turns[p] == p.turn {
			p.look.under = false
		}
		switch err := results[i].Err; {
		case l.turns[p] != p.turn || p.pipe.phase != probing:
		case err == nil && l.ranges[p].LogStart > l.at[p].LogEnd:
			p.overtaken(now, l.at[p], l.ranges[p].LogStart)
		case err == nil:
			p.goOn(now, l.at[p])
		case mirror.KindOf(err).Retryable():
			p.lookAgain(now, err)
		default:
			p.fail(l.disagreement(p, results[i]))
		}
		p.mu.Unlock()
	}
}

// disagreement says what it means that the logs differ; p.mu is held.
func (l *looking) disagreement(p *part, a compare.Alignment) error {
	at, err := l.at[p], a.Err
	kind := mirror.KindOf(err)
	if a.Stranger && p.look.entry {
		return mirror.Errorf(mirror.IdentityBroken, "%w: %w", stranger{a.First}, err)
	}
	if p.look.cause.source && p.look.cause.err != nil {
		return mirror.Errorf(kind, "%w: %w", p.look.cause.err, err)
	}
	if !p.look.entry && at.LogEnd > p.pipe.sent {
		return mirror.Errorf(mirror.IdentityBroken, "the destination's log ends at offset %d, expected %d: %w: %w",
			at.LogEnd, p.pipe.sent, stranger{p.pipe.sent}, err)
	}
	return mirror.Errorf(kind, "the destination's log ends at offset %d: %w", at.LogEnd, err)
}
