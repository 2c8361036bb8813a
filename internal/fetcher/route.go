package fetcher

import (
	"context"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// lose hands a partition to the router; p.mu is held. Long enough without a leader that answers, it fails.
func (p *part) lose(now time.Time, err error) {
	if p.thread != nil {
		p.thread.remove(p)
	}
	p.severed = true
	if p.away.IsZero() {
		p.away = now
	}
	if now.Sub(p.away) > patience && !kafka.UnknownTopic(err) { // a topic that is gone is the metadata manager's to find
		kind := kafka.Classify(err)
		if kind != mirror.Refused {
			kind = mirror.Unreachable
		}
		p.fail(mirror.Errorf(kind, "fetch from the source: %w", err))
		return
	}
	p.routeAt.Store(now.Add(backoff(p.awayTries, lookBackoff)).UnixNano())
	p.awayTries++
	p.awayErr = err
	p.src.route(p)
}

// route queues a partition that has no thread; its lock is held.
func (s *source) route(p *part) {
	if p.routed {
		return
	}
	p.routed = true
	s.mu.Lock()
	s.lost = append(s.lost, p)
	s.mu.Unlock()
	s.pool.poke()
}

// backoff doubles from base on.
func backoff(tries int, base time.Duration) time.Duration {
	return min(base<<min(tries, 10), maxBackoff)
}

// startRouting finds leaders for what is due, in the background; it returns when the next one is due (zero: none).
func (s *source) startRouting(ctx context.Context, now time.Time) (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.routing {
		return time.Time{}
	}
	var due, rest []*part
	for _, p := range s.lost {
		at := time.Unix(0, p.routeAt.Load())
		if at.After(now) {
			rest = append(rest, p)
			if next.IsZero() || at.Before(next) {
				next = at
			}
			continue
		}
		due = append(due, p)
	}
	s.lost = rest
	if len(due) > 0 {
		s.routing = true
		s.pool.workers.Go(func() { s.findLeaders(ctx, due) })
	}
	return next
}

func (s *source) findLeaders(ctx context.Context, parts []*part) {
	defer s.pool.poke()
	defer func() {
		s.mu.Lock()
		s.routing = false
		s.mu.Unlock()
	}()
	topics := map[string]struct{}{}
	for _, p := range parts {
		topics[p.topic] = struct{}{}
	}
	ctx, cancel := context.WithTimeout(ctx, s.pool.cfg.RequestTimeout)
	defer cancel()
	cluster, err := s.cluster()
	if err == nil {
		err = s.topology.refresh(ctx, cluster, keys(topics), time.Now().Add(-lookBackoff))
	}
	now := time.Now()
	for _, p := range parts {
		p.mu.Lock()
		p.routed = false
		if p.pipe.phase == running && p.fetching && p.thread == nil {
			p.assign(ctx, now, err)
		}
		p.mu.Unlock()
	}
}

// assign gives a partition to the thread of its leader; p.mu is held.
func (p *part) assign(ctx context.Context, now time.Time, err error) {
	topic, at, ok := p.src.topology.find(p.topic, p.key.Index)
	switch {
	case err != nil:
	case topic.Err != nil:
		err = topic.Err
	case !p.sameSource(topic.ID):
		err = errOtherTopic
	case !ok:
		err = p.awayErr
		if err == nil {
			err = mirror.Errorf(mirror.Unreachable, "no leader")
		}
	}
	if err != nil {
		p.lose(now, err)
		return
	}
	if p.sourceEpoch >= 0 && at.LeaderEpoch > p.sourceEpoch {
		p.sourceMoved(at.LeaderEpoch)
	}
	p.sourceEpoch, p.sourceID = at.LeaderEpoch, topic.ID
	p.src.give(p, threadKey{at.Leader, int(p.key.Index) % p.src.pool.cfg.Threads})
}

var errOtherTopic = mirror.Errorf(mirror.SourceGone, "the source topic was recreated")

// sameSource: ids are compared where both are known.
func (p *part) sameSource(id mirror.TopicID) bool {
	return id.IsZero() || p.key.TopicID.IsZero() || id == p.key.TopicID
}

// give hands a partition to a thread, which is started if need be; p.mu is held.
func (s *source) give(p *part, key threadKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		t := s.threads[key]
		if t == nil || t.ended() {
			t = newThread(s, key)
			s.threads[key] = t
			s.pool.startThread(t)
		}
		if t.add(p) {
			return
		}
	}
}

func (t *thread) ended() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// sourceMoved: the source's leader epoch rose; p.mu is held. Continuous fencing keeps the destination's above it.
func (p *part) sourceMoved(epoch int32) {
	m := p.target.Mirror
	if m.EpochFencing == mirror.Continuous && p.destEpoch >= 0 && epoch > max(p.destEpoch-3, p.fencedFor) && p.src.pool.deps.Fencing != nil {
		t := p.target
		p.fencedFor = epoch // asked once
		p.src.pool.later(func() { p.src.pool.deps.Fencing(t, epoch) })
	}
}
