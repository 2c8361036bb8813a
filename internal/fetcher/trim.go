package fetcher

import (
	"context"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// sawSource notes what the source says about its log; p.mu is held.
func (p *part) sawSource(start, end int64, now time.Time) {
	if start >= 0 {
		p.numbers.sourceStart.Store(start)
	}
	if end >= 0 && end != p.numbers.sourceEnd.Swap(end) || !p.began {
		p.began = true
		p.src.pool.moved.Add(1)
		p.numbers.lag.saw(end, now)
	}
}

// sawDest notes where the destination begins and ends; −1: not known. p.mu is held.
func (p *part) sawDest(start, end int64) {
	if end >= 0 {
		p.numbers.lag.reached(end)
		if end != p.numbers.destEnd.Swap(end) {
			p.src.pool.moved.Add(1)
		}
	}
	if start < 0 {
		return
	}
	p.numbers.destStart.Store(start)
	source := p.numbers.sourceStart.Load()
	if source >= 0 && start > source && !p.told && p.seedTo < 0 {
		p.told = true
		p.src.pool.log.Warn("destination log begins above the source's: somebody has trimmed it",
			p.attrs("destination_start", start, "source_start", source)...)
	}
}

// lostDest: the destination topic is gone, so that nothing is known about where it ends, least of all that it is level.
func (p *part) lostDest() {
	if p.numbers.destEnd.Swap(-1) >= 0 {
		p.src.pool.moved.Add(1)
	}
}

// trim lets the destination's log start follow the source's, many partitions a request.
func (pool *Pool) trim(ctx context.Context, parts []*part) {
	ctx, cancel := context.WithTimeout(kafka.WithLease(ctx, pool.deps.Lease), 2*pool.cfg.RequestTimeout)
	defer cancel()
	due, at := map[kafka.TP]int64{}, map[kafka.TP]*part{}
	topics := map[string]struct{}{}
	for _, p := range parts {
		if start, ok := p.trimDue(time.Now()); ok {
			p.mu.Lock()
			tp := p.destTP(-1)
			p.mu.Unlock()
			due[tp], at[tp] = start, p
			topics[p.topic] = struct{}{}
		}
	}
	m, err := pool.deps.Destination.Metadata(ctx, keys(topics)...)
	if err != nil || len(due) == 0 {
		return
	}
	for tp := range due { // protocol R17: the id right before
		if m.Topics[tp.Topic].ID != tp.TopicID {
			delete(due, tp)
		}
	}
	for tp, d := range pool.deps.Destination.DeleteRecords(ctx, due) {
		at[tp].trimmed(d)
	}
}

// trimDue gives the log start that is to be followed; never above the source's.
func (p *part) trimDue(now time.Time) (int64, bool) {
	source, dest, end := p.numbers.sourceStart.Load(), p.numbers.destStart.Load(), p.numbers.destEnd.Load()
	if source <= dest || dest < 0 || end < source {
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return source, p.pipe.phase == running && p.seedTo < 0 && now.After(p.noTrim)
}

func (p *part) trimmed(d kafka.DeletedRecords) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case d.Err == nil:
		p.numbers.destStart.Store(d.LogStart)
		p.trimRefused = false
	case kafka.PolicyViolation(d.Err): // only compacted: the log start cannot be moved
		p.noTrim = time.Now().Add(10 * time.Minute)
	default:
		p.noTrim = time.Now().Add(maxBackoff)
		p.trimFailed(d.Err)
	}
}

// trimFailed counts and, where only an operator can change it, tells once that the destination keeps what the source has
// given up; p.mu is held.
func (p *part) trimFailed(err error) {
	p.stats.trimFailures.Add(1)
	if kafka.Classify(err) != mirror.Refused {
		p.src.pool.log.Debug("log start not moved", p.attrs(mirror.KeyErr, err)...)
		return
	}
	if p.trimRefused {
		return
	}
	p.trimRefused = true
	p.src.pool.log.Warn("log start does not follow the source's", p.attrs(mirror.KeyErr, err)...)
	p.src.pool.event(p, "log start does not follow", "destination: %v", err)
}
