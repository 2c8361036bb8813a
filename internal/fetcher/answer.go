package fetcher

import (
	"fmt"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// answered takes a broker's answer to the oldest write in flight of a partition.
func (pool *Pool) answered(p *part, a answer, now time.Time) {
	p.mu.Lock()
	if a.verdict == hopeless && p.seedTo >= 0 && kafka.InvalidRecord(a.err) {
		a.verdict = refused // somebody has given the topic its policy back: the look suspends it again
	}
	acked := p.pipe.acked
	w, ev := p.pipe.answered(a)
	if p.pipe.acked > acked { // also of a partition that was stopped meanwhile: where it ends is put on record
		p.progressed(&w, now)
	}
	if a.verdict == stored && a.base < w.from {
		a.err = mirror.Errorf(mirror.Retriable, "the batch for offset %d was answered as a repeat of offset %d", w.from, a.base)
	}
	if a.err != nil {
		p.note(&w, a)
	}
	switch ev {
	case look:
		p.lookNow(now)
	case failed:
		p.reportFailure()
	case progress, nothing:
	}
	p.rest(now)
	s := p.offer()
	if p.leftOut && p.thread != nil && p.pipe.queue.bytes <= pool.share()/2 {
		p.leftOut = false
		p.thread.touch(p)
	}
	if p.pipe.queue.len() == 0 && p.pipe.flight.n == 0 {
		p.deactivate()
	}
	p.mu.Unlock()
	w.hold.drop()
	if s != nil {
		s.poke()
	}
}

// note keeps what an answer says for the look that follows; p.mu is held.
func (p *part) note(w *write, a answer) {
	c := cause{err: a.err}
	switch a.verdict {
	case ambiguous:
		p.unsure = true
		// the broker forgets by record time, and a filler does not wait for a late batch's sequence
		c.still = w.maxTime < p.pipe.aloneBelow || !p.pipe.markers
	case tooLarge:
		if w.joined {
			p.joinTo = len(w.batch) / 2
		} else {
			c.tooLarge = len(w.batch)
		}
	case damaged:
		p.damaged(w.from, a.err)
	case stored, refused, hopeless:
	}
	if own := w.owner.id == p.pipe.own.ProducerID; own && !p.ownKnown && (a.verdict == stored || kafka.OutOfOrderSequence(a.err) || kafka.InvalidProducerEpoch(a.err)) {
		p.blind = min(p.blind+1, lastEpoch)
		p.look.tries = 0 // one step nearer to an epoch that the broker takes: nothing to back off from
	}
	p.look.cause.add(c)
}

// progressed publishes what a write that was stored means; p.mu is held.
func (p *part) progressed(w *write, now time.Time) {
	p.look.tries, p.ownKnown = 0, true
	p.touched = now
	p.sawDest(-1, w.to)
	p.stats.producedBytes.Add(uint64(len(w.batch)))
	if w.seed {
		p.seeded()
		return
	}
	p.stats.producedRecords.Add(uint64(w.records))
	if w.epoch >= 0 && int64(w.epoch) != p.numbers.epoch.Load() {
		p.numbers.epochStart.Store(w.from)
		p.numbers.epoch.Store(int64(w.epoch))
		p.src.pool.moved.Add(1)
	}
	p.stats.latency.Observe(latency(w, now, p.src.pool.began).Seconds())
}

// latency is how long ago the source took a record: by the record's own time where that can be, otherwise since it was
// fetched.
func latency(w *write, now, began time.Time) time.Duration {
	since := now.Sub(began) - time.Duration(w.arrived)
	if at := now.Sub(time.UnixMilli(w.maxTime)); at >= since && at < since+5*time.Second {
		return at
	}
	return since
}

// rest is for a partition that was stopped, or is about to fail, each time something of it has ended. Where the log ends
// is looked up if it is open what has arrived; the fillers of an unfinished seeding are removed. p.mu is held.
func (p *part) rest(now time.Time) {
	p.failAhead()
	if p.pipe.phase != closed || !p.pipe.idle() {
		return
	}
	if p.unsure && p.pipe.failure == nil && p.look.due.IsZero() && !p.look.under {
		p.lookAt(now)
	}
	p.seeded()
	p.src.pool.poke()
}

// sawDestStart notes the log start that a Produce answer carries.
func (pool *Pool) sawDestStart(p *part, start int64) {
	if start >= 0 && start != p.numbers.destStart.Load() {
		p.mu.Lock()
		p.sawDest(-1, -1)
		p.sawDest(start, -1)
		p.mu.Unlock()
	}
}

func (pool *Pool) event(p *part, name, format string, args ...any) {
	if pool.deps.Event == nil {
		return
	}
	e := mirror.Event{
		At: time.Now(), Mirror: p.key.Mirror, Topic: p.topic, Partition: p.key.Index, Name: name,
		From: mirror.NotRecorded, To: mirror.NotRecorded, Message: fmt.Sprintf(format, args...),
	}
	pool.later(func() { pool.deps.Event(e) })
}

// readAnswer says what a broker's word about a batch means.
func readAnswer(r kafka.ProduceResult) answer {
	a := answer{base: r.BaseOffset, appendTime: r.LogAppendTime, err: r.Err}
	switch {
	case r.Err == nil:
	case kafka.TooLarge(r.Err):
		a.verdict = tooLarge
	case kafka.Corrupt(r.Err):
		a.verdict = damaged
	case kafka.OutOfOrderSequence(r.Err), kafka.DuplicateSequence(r.Err), kafka.InvalidProducerEpoch(r.Err), kafka.UnknownTopic(r.Err):
		a.verdict = refused
	case kafka.TransactionUnverified(r.Err):
		a.verdict = hopeless
		a.err = mirror.Errorf(mirror.Refused, "destination: transactions are not taken as they are: %w", r.Err).
			WithHint("set transaction.partition.verification.enable=false on its brokers, or mirror with transactions: committed")
	case kafka.AfterAppendDoubt(r.Err):
		a.verdict = ambiguous
	case kafka.Classify(r.Err) == mirror.Refused:
		a.verdict, a.err = hopeless, fmt.Errorf("destination: %w", r.Err)
	default:
		a.verdict = refused
	}
	return a
}
