package fetcher

import (
	"context"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// overtaken: records expired at the source before they were copied (SPEC §8.4); p.mu is held.
func (p *part) overtaken(now time.Time, at kafka.ResumePoint, start int64) {
	first, last := at.LogEnd, start-1
	if p.target.Mirror.OnLostRange == mirror.Fail && !p.target.AcceptLostRange {
		p.fail(mirror.Errorf(mirror.LostRange, "the records of offsets %d to %d expired at the source before they were copied", first, last).
			WithHint("recover the topic to go on without them"))
		return
	}
	if n := start - max(first, p.lostTo); n > 0 {
		p.stats.lostRecords.Add(uint64(n))
		p.lostTo = start
		p.src.pool.log.Error("records lost: they expired at the source before they were copied", p.attrs(mirror.KeyFrom, first, mirror.KeyTo, last, mirror.KeyCount, n)...)
		p.src.pool.event(p, "records lost", "offsets %d to %d expired at the source before they were copied", first, last)
	}
	p.goOn(now, at)
	p.pipe.push([]item{{kind: hole, reason: lost, from: first, to: start, maxTime: -1, epoch: -1}})
	p.offer()
}

// seedChunk is how many offsets one filler batch takes.
const seedChunk = int64(recordbatch.MaxFiller)

// seed writes compressed fillers up to the source's log start, through the identity like data; then they are trimmed
// (protocol R13). p.mu is held.
func (p *part) seed(now time.Time, at kafka.ResumePoint, start int64) {
	chunk := p.chunk
	if chunk == 0 {
		chunk = seedChunk
	}
	if p.look.cause.tooLarge > 0 {
		chunk = max(chunk/4, 1000)
	}
	p.chunk = chunk
	p.goOn(now, at)
	p.stopFetching()
	p.seedTo, p.mirrored, p.pipe.joinTo = start, false, 0
	var items []item
	for from := at.LogEnd; from < start; {
		to := min(from+chunk, start)
		items = append(items, item{kind: seeds, from: from, to: to, maxTime: now.UnixMilli(), epoch: -1})
		from = to
	}
	p.pipe.push(items)
	if s := p.offer(); s != nil {
		s.poke()
	}
	p.seeded()
}

// fillerFor makes the batch of a seeds item right before it leaves; p.mu is held.
func (p *part) fillerFor(i *item) error {
	b, err := p.src.pool.filler(int32(i.to - i.from))
	if err != nil {
		return err
	}
	i.batch, i.hold = b, newHold(p.src.pool.budget, int64(len(b)), nil)
	p.pipe.queue.bytes += i.size()
	return nil
}

// filler gives a filler batch of its own. The large one is made once an hour and copied.
func (pool *Pool) filler(count int32) (recordbatch.Batch, error) {
	now := time.Now()
	if count != recordbatch.MaxFiller {
		return recordbatch.Filler(kafka.Codec, count, now.UnixMilli())
	}
	pool.fillerMu.Lock()
	defer pool.fillerMu.Unlock()
	if now.Sub(pool.fillerMade) > time.Hour {
		b, err := recordbatch.Filler(kafka.Codec, count, now.UnixMilli())
		if err != nil {
			return nil, err
		}
		pool.fillerBatch, pool.fillerMade = b, now
	}
	return append(recordbatch.Batch(nil), pool.fillerBatch...), nil
}

// seeded trims once all fillers are written; p.mu is held.
func (p *part) seeded() {
	if p.seedTo < 0 || p.trimming || p.pipe.phase == running && p.pipe.acked < p.seedTo || !p.pipe.idle() {
		return
	}
	if p.pipe.phase != running && p.pipe.phase != closed {
		return
	}
	p.trimming = true
	to, pool := p.pipe.acked, p.src.pool
	pool.workers.Go(func() { pool.endSeeding(pool.ctx, p, to) })
}

// endSeeding removes the fillers below an offset and has the partition looked at again, or lets it rest if it was stopped.
func (pool *Pool) endSeeding(ctx context.Context, p *part, to int64) {
	p.mu.Lock()
	tp := p.destTP(-1)
	p.mu.Unlock()
	start, err := pool.trimSeeds(ctx, tp, to)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trimming = false
	now := time.Now()
	if p.pipe.phase == closed {
		if p.closeTries++; err == nil || pool.stopping() || p.closeTries > maxTrims {
			p.seedTo = -1 // a later start finds the fillers
		}
		return // else the chores try again
	}
	if err != nil {
		p.askLook(now, cause{err: err})
		return
	}
	p.numbers.destStart.Store(start)
	p.look.tries = 0
	p.askLook(now, cause{err: errSeeded})
}

const maxTrims = 30 // tries to remove the fillers of a seeding that was stopped

var errSeeded = mirror.Errorf(mirror.Retriable, "seeding ended")

// trimSeeds moves the log start up and gives the topic its policy back.
func (pool *Pool) trimSeeds(ctx context.Context, tp kafka.TP, to int64) (int64, error) {
	ctx, cancel := context.WithTimeout(kafka.WithLease(ctx, pool.deps.Lease), 3*pool.cfg.RequestTimeout)
	defer cancel()
	if err := pool.sameDestination(ctx, tp); err != nil {
		return -1, err
	}
	d := pool.deps.Destination.DeleteRecords(ctx, map[kafka.TP]int64{tp: to})[tp]
	switch {
	case kafka.PolicyViolation(d.Err): // somebody has given the topic its policy back meanwhile
		if err := pool.suspendCompaction(ctx, tp); err != nil {
			return -1, err
		}
		return -1, mirror.Errorf(mirror.Retriable, "%w: cleanup.policy is being set to delete", d.Err)
	case d.Err != nil:
		return -1, d.Err
	}
	return d.LogStart, pool.restorePolicy(ctx, tp)
}

// sameDestination checks that a topic is still the one that is meant, right before an effect that names it (protocol R17).
func (pool *Pool) sameDestination(ctx context.Context, tp kafka.TP) error {
	m, err := pool.deps.Destination.Metadata(ctx, tp.Topic)
	if err != nil {
		return err
	}
	if t := m.Topics[tp.Topic]; t.Err != nil {
		return t.Err
	} else if t.ID != tp.TopicID {
		return mirror.Errorf(mirror.DestinationGone, "topic %s has another id at the destination", tp.Topic)
	}
	return nil
}
