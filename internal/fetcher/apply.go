package fetcher

import (
	"time"

	"mirrord/internal/mirror"
)

// apply brings the set of partitions in line with the targets.
func (pool *Pool) apply(targets []mirror.Target) {
	defer pool.moved.Add(1)
	now := time.Now()
	keep := make(map[mirror.Partition]struct{}, len(targets))
	for _, t := range targets {
		keep[t.Partition] = struct{}{}
		src := pool.sourceOf(t.Mirror)
		pool.setMu.Lock()
		p := pool.parts[t.Partition]
		if p == nil {
			p = newPart(t, src, pool.metrics.topic(t.Mirror.Name, t.Topic))
			pool.parts[t.Partition] = p
		}
		pool.setMu.Unlock()
		p.mu.Lock()
		p.aim(t, src, now)
		p.mu.Unlock()
	}
	for _, p := range pool.allParts() {
		if _, ok := keep[p.key]; !ok {
			p.mu.Lock()
			p.gone, pool.leaving, p.mirrored = true, true, false // whoever comes next may leave fillers
			p.halt()
			p.mu.Unlock()
		}
	}
	pool.forgetGone()
}

// sourceOf finds or makes a mirror's source and has its connections rebuilt if they changed.
func (pool *Pool) sourceOf(m *mirror.Resolved) *source {
	pool.setMu.Lock()
	defer pool.setMu.Unlock()
	s := pool.sources[m.Name]
	if s == nil {
		s = newSource(pool, m)
		pool.sources[m.Name] = s
		return s
	}
	if old := s.mirror.Load(); old != m {
		s.set(m)
		if !old.Source.Equal(m.Source) || old.TransactionsMode != m.TransactionsMode {
			s.reconnect()
		}
	}
	return s
}

// reconnect has every thread begin anew.
func (s *source) reconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.threads {
		t.renew.Store(true)
		t.poke()
	}
}

// aim takes a target; p.mu is held.
func (p *part) aim(t mirror.Target, src *source, now time.Time) {
	old := p.target
	p.target, p.src, p.gone = t, src, false
	p.mirrored = p.mirrored && old.DestinationID == t.DestinationID
	switch {
	case !t.Run:
		p.halt()
	case p.pipe.phase != closed && (old.DestinationID != t.DestinationID || modesOf(old.Mirror) != modesOf(t.Mirror)):
		p.halt()
		p.start(now)
	case p.pipe.phase == closed && (p.pipe.failure == nil || t.StateEpoch > p.failedAt):
		p.start(now)
	}
}

func modesOf(m *mirror.Resolved) [2]string { return [2]string{m.TransactionsMode, m.FillersMode} }

// start lets the partition begin with a look, as soon as all that was in flight is answered; p.mu is held.
func (p *part) start(now time.Time) {
	if !p.startable() || p.src.pool.stopping() {
		p.startDue = true
		return
	}
	m := p.target.Mirror
	p.startDue = false
	p.turn++
	p.pipe = pipeline{phase: probing, markers: m.FillersMode != mirror.Transactions}
	p.plan = planner{codec: p.src.pool.codec(), exact: m.TransactionsMode == mirror.Exact, slot: p.target.Slot, budget: p.src.pool.budget}
	before := p.look.cause // what may still arrive may still arrive
	p.look = lookState{listed: p.look.listed, entry: true, wait: p.look.wait, cause: cause{still: before.still, marker: before.marker}}
	if p.look.wait.IsZero() {
		p.look.wait = now.Add(p.src.pool.cfg.TakeoverWait)
	}
	p.joinTo, p.severed = joinLimit, false
	p.away, p.awayTries, p.corrupt, p.told, p.blind, p.chunk, p.closeTries = time.Time{}, 0, 0, false, 0, 0, 0
	p.numbers.lag.restart()
	p.mirrored = false
	p.began, p.fencedFor = false, -1 // fencing that a pause has cut short is asked for again
	p.lookAt(now)
}

// halt ends mirroring: nothing new leaves, what is in flight is still answered; p.mu is held.
func (p *part) halt() {
	p.startDue = false
	p.stopFetching()
	if p.pipe.phase == closed {
		return
	}
	p.turn++
	p.look = lookState{listed: p.look.listed, cause: p.look.cause, wait: p.look.wait}
	p.pipe.close()
	p.rest(time.Now())
}

// forgetGone drops partitions that are not wanted any more, once they are drained.
func (pool *Pool) forgetGone() {
	if !pool.leaving {
		return
	}
	pool.setMu.Lock()
	defer pool.setMu.Unlock()
	pool.leaving = false
	mirrors := map[string]struct{}{}
	for key, p := range pool.parts {
		p.mu.Lock()
		if p.gone && p.drained() {
			delete(pool.parts, key)
		} else {
			mirrors[key.Mirror] = struct{}{}
			pool.leaving = pool.leaving || p.gone
		}
		p.mu.Unlock()
	}
	for name := range pool.sources {
		if _, ok := mirrors[name]; !ok {
			delete(pool.sources, name)
		}
	}
}

// Moved rises as soon as Positions has something new to tell, other than lag that only grows older.
func (pool *Pool) Moved() int64 { return pool.moved.Load() }

// Positions reports every partition, mirrored or watched.
func (pool *Pool) Positions() []mirror.PositionReport {
	parts := pool.allParts()
	reports := make([]mirror.PositionReport, 0, len(parts))
	now := time.Now()
	for _, p := range parts {
		reports = append(reports, p.report(now))
	}
	return reports
}

func (p *part) report(now time.Time) mirror.PositionReport {
	n := &p.numbers
	r := mirror.PositionReport{
		Partition: p.key, Topic: p.topic, SourceOffset: n.sourceEnd.Load(), DestinationOffset: n.destEnd.Load(),
		SourceEpoch: mirror.Position{LeaderEpoch: int32(n.epoch.Load()), Offset: n.epochStart.Load()},
	}
	if r.DestinationOffset >= 0 && r.SourceOffset > r.DestinationOffset {
		r.OldestUnmirrored = n.lag.oldest(r.DestinationOffset, r.SourceOffset, now)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.Drained, r.StateEpoch = p.drained() && !p.startDue, p.target.StateEpoch
	r.Unlocated = !p.mirrored
	return r
}
