package fetcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// receive waits for an answer and hands each partition's part on.
func (t *thread) receive(ctx context.Context, call *kafka.Call) {
	select {
	case <-call.Done():
	case <-ctx.Done():
		return
	}
	results, err := t.session.Handle(call)
	if err != nil {
		if !kafka.SessionLost(err) {
			t.giveBack(err)
		}
		return
	}
	t.src.up()
	arrived := time.Now()
	memory := newHold(t.pool.budget, int64(call.Held()), call.Release)
	call.Retain()
	defer memory.drop()
	var sinks []*sink
	var seen map[*part]struct{}
	if len(t.hungry) > 0 {
		seen = make(map[*part]struct{}, len(results))
	}
	bytes := 0
	for i := range results {
		f := &results[i]
		t.mu.Lock()
		p := t.parts[partKey{f.Topic, f.Partition}]
		t.mu.Unlock()
		if p == nil {
			continue
		}
		if seen != nil {
			seen[p] = struct{}{}
		}
		bytes += len(f.Bytes)
		if s := t.handle(p, f, memory, arrived); s != nil && !slices.Contains(sinks, s) {
			sinks = append(sinks, s)
		}
	}
	t.welcome()
	for _, s := range sinks {
		s.poke()
	}
	t.findEmptyTails(ctx, seen, bytes)
}

// welcome ends the absence of partitions that are fetched again: those that an error has not sent away once more. An
// answer need not name them, for nothing may be new.
func (t *thread) welcome() {
	for _, p := range t.back {
		p.mu.Lock()
		if p.thread == t {
			p.away = time.Time{}
			p.awayTries = 0
		}
		p.mu.Unlock()
	}
	t.back = nil
}

// handle takes one partition of an answer and returns the sink that has something to do now.
func (t *thread) handle(p *part, f *kafka.FetchedPartition, memory *hold, now time.Time) *sink {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thread != t || p.plan.exact != t.exact { // what is not decided must never be planned as decided
		return nil
	}
	t.mu.Lock()
	t.changed[p] = struct{}{}
	t.mu.Unlock()
	if f.Err != nil {
		p.fetchFailed(f, now)
		return nil
	}
	p.sawSource(f.LogStart, f.HighWatermark, now)
	if p.pipe.phase != running || p.pipe.tail != p.asked {
		return nil
	}
	if f.Diverging != mirror.NoPosition {
		p.askLook(now, cause{source: true, err: fmt.Errorf("source has another history: its leader epoch %d ends at offset %d",
			f.Diverging.LeaderEpoch, f.Diverging.Offset)})
		return nil
	}
	p.stats.fetchedBytes.Add(uint64(len(f.Bytes)))
	p.plan.open = p.pipe.open
	items, err := p.plan.plan(p.pipe.tail, fetched{
		records: f.Bytes, aborted: f.Aborted, bound: f.HighWatermark,
		arrived: int64(now.Sub(t.clock)), hold: memory,
	})
	p.push(items)
	if err != nil {
		p.planFailed(err)
		return p.offer()
	}
	if t.src.bound(f) > p.pipe.tail {
		if len(items) > 0 {
			t.hungry[p] = 0
		} else if _, ok := t.hungry[p]; !ok {
			t.hungry[p] = 0
		}
	} else {
		delete(t.hungry, p)
	}
	return p.offer()
}

// push queues items; p.mu is held.
func (p *part) push(items []item) {
	if len(items) == 0 {
		return
	}
	p.pipe.push(items)
	if last := &items[len(items)-1]; last.epoch >= 0 {
		p.lastEpoch = last.epoch
	}
	if !p.active {
		p.active = true
		p.src.pool.active.Add(1)
	}
}

// planFailed: damaged bytes are fetched again, a few times; p.mu is held.
func (p *part) planFailed(err error) {
	switch {
	case errors.Is(err, errBeyond) && (p.beyond != p.pipe.tail || p.beyonds < maxBeyond):
		if p.beyond != p.pipe.tail {
			p.beyond, p.beyonds = p.pipe.tail, 0
		}
		p.beyonds++
	case errors.Is(err, errDamaged), errors.Is(err, errBeyond):
		p.damaged(p.pipe.tail, err)
	default:
		p.ahead, p.fetching = err, false
		if p.thread != nil {
			p.thread.remove(p)
		}
		p.failAhead()
	}
}

// failAhead fails a partition over what lies behind all that waited, once that is stored; p.mu is held.
func (p *part) failAhead() {
	if p.ahead != nil && p.pipe.phase == running && p.pipe.idle() && p.pipe.queue.len() == 0 {
		p.fail(p.ahead)
	}
}

const maxBeyond = 10 // answers in a row with a batch above the high watermark

// damaged counts a batch that arrived damaged; p.mu is held.
func (p *part) damaged(offset int64, err error) {
	if p.corruptAt != offset {
		p.corruptAt, p.corrupt = offset, 0
	}
	if p.corrupt++; p.corrupt >= corruptTries {
		p.fail(mirror.Errorf(mirror.CorruptSource, "the source's batch at offset %d stays damaged: %w", offset, err).
			WithHint("nothing was skipped; repair the source's log, move its leader to a healthy replica, or delete the source's records up to the end of the batch"))
		return
	}
	p.src.pool.log.Warn("damaged batch fetched again", p.attrs(mirror.KeyOffset, offset, mirror.KeyErr, err)...)
}

// fetchFailed takes an error about one partition; p.mu is held.
func (p *part) fetchFailed(f *kafka.FetchedPartition, now time.Time) {
	switch {
	case kafka.OutOfRange(f.Err):
		p.askLook(now, cause{source: true, err: f.Err})
	case kafka.Corrupt(f.Err):
		p.damaged(p.pipe.tail, f.Err)
	case kafka.Classify(f.Err) == mirror.Refused:
		p.fail(fmt.Errorf("source: %w", f.Err))
	default: // leader moved, topic gone, not available yet: find it again
		p.lose(now, f.Err)
	}
}

// findEmptyTails notices partitions of which the source says that more exists though a fetch with room to spare brings
// nothing: offsets that the cleaner has taken up to the end. They are looked at alone before they count as a hole.
func (t *thread) findEmptyTails(ctx context.Context, seen map[*part]struct{}, bytes int) {
	if len(t.hungry) == 0 || bytes > int(t.pool.fetchSize())/2 {
		return
	}
	for p, polls := range t.hungry {
		if _, ok := seen[p]; ok && polls == 0 {
			t.hungry[p] = 1
			continue
		}
		if t.hungry[p]++; t.hungry[p] >= 3 {
			delete(t.hungry, p)
			t.pool.lookAtTail(ctx, p)
		}
	}
}
