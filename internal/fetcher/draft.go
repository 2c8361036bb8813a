package fetcher

import (
	"slices"
	"strings"
	"time"

	"mirrord/internal/kafka"
)

// draft is a request that is being put together.
type draft struct {
	parts  []*part
	writes []*write
	bytes  int64
	owner  producer // of a transactional request, which has exactly one; zero: plain
}

// build takes one write of each ready partition, as far as they fit one request. pause: how long the throttle holds
// those that are left; 0: none.
func (s *sink) build() (d draft, pause time.Duration) {
	now := time.Now()
	ready := s.listed(now)
	var again, looks []*part
	var hold time.Duration
	for i, p := range ready {
		if d.bytes >= maxRequest {
			again = append(again, ready[i:]...)
			break
		}
		switch wait, verdict := s.take(&d, p, now); verdict {
		case takeLater:
			again = append(again, p)
		case takeHeld:
			s.hold(p, now.Add(wait))
			hold += wait
		case takeLook:
			looks = append(looks, p)
		case taken:
		}
	}
	s.pool.metrics.throttled.Add(int64(hold))
	if len(looks) > 0 {
		s.pool.checkEnds(s.broker, looks)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = append(again, s.ready...)
	if len(s.held) > 0 {
		pause = max(s.until.Sub(now), time.Millisecond)
	}
	return d, pause
}

// listed empties the list of ready partitions; those that the throttle held come back once they may go.
func (s *sink) listed(now time.Time) []*part {
	s.mu.Lock()
	defer s.mu.Unlock()
	ready := s.ready
	s.ready = nil
	if len(s.held) > 0 && !now.Before(s.until) {
		ready, s.held = append(ready, s.held...), nil
	}
	return ready
}

func (s *sink) hold(p *part, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) == 0 || until.Before(s.until) {
		s.until = until
	}
	s.held = append(s.held, p)
}

// taking is what build did with a partition.
type taking uint8

const (
	taken     taking = iota // or nothing to take
	takeLater               // belongs into another request
	takeHeld                // by the throttle
	takeLook                // its log end is to be read first
)

func (s *sink) take(d *draft, p *part, now time.Time) (time.Duration, taking) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listed = false
	if p.pipe.ready() != send {
		p.offer()
		return 0, taken
	}
	head := p.pipe.queue.at(0)
	if len(d.parts) > 0 && head.owner != d.owner {
		p.listed = true
		return 0, takeLater
	}
	if p.pipe.flight.n == 0 && now.Sub(p.touched) > idleLook {
		p.checking = true
		return 0, takeLook
	}
	if hold := max(p.src.throttle.wait(now), s.pool.throttle.wait(now)); hold > 0 {
		p.listed = true
		return hold, takeHeld
	}
	if head.kind == seeds && head.batch == nil {
		if err := p.fillerFor(head); err != nil {
			p.fail(err)
			return 0, taken
		}
	}
	if head.kind != seeds { // a filler brings no record nearer
		p.numbers.lag.writing(head.from, head.maxTime)
	}
	d.owner = head.owner
	p.pipe.aloneBelow = now.Add(expiryMargin - s.pool.expiry(now)).UnixMilli()
	w := p.pipe.take(s.join)
	p.touched = now
	d.parts, d.writes = append(d.parts, p), append(d.writes, w)
	d.bytes += int64(len(w.batch))
	p.src.throttle.spend(now, int64(len(w.batch)))
	s.pool.throttle.spend(now, int64(len(w.batch)))
	if p.pipe.ready() == send { // for the next request
		p.listed = true
		s.list(p)
	}
	return 0, taken
}

// sort brings the partitions of a topic together.
func (d *draft) sort() {
	type pair struct {
		p *part
		w *write
	}
	pairs := make([]pair, len(d.parts))
	for i := range pairs {
		pairs[i] = pair{d.parts[i], d.writes[i]}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int {
		if a.p.topic == b.p.topic {
			return 0
		}
		return strings.Compare(a.p.topic, b.p.topic)
	})
	for i := range pairs {
		d.parts[i], d.writes[i] = pairs[i].p, pairs[i].w
	}
}

func (d *draft) topics() (topics []kafka.ProduceTopic) {
	for i, p := range d.parts {
		if i == 0 || d.parts[i-1].topic != p.topic {
			topics = append(topics, kafka.ProduceTopic{Name: p.topic, ID: p.destID})
		}
		t := &topics[len(topics)-1]
		t.Partitions = append(t.Partitions, kafka.ProducePartition{Index: p.key.Index, Batch: d.writes[i].batch})
	}
	return topics
}
