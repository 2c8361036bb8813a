package fetcher

import (
	"time"

	"mirrord/internal/mirror"
)

// lookState is a partition's look at the destination: why, when, and how often in vain.
type lookState struct {
	listed bool      // in the pool's list
	under  bool      // going on now
	due    time.Time // zero: none is due
	since  time.Time // of the first of the looks that brought nothing; zero: none did
	tries  int       // since the last progress
	cause  cause
	entry  bool // the partition enters MIRRORING: the logs are compared (protocol R7)
	// after doubt about a marker or about data that the broker may have forgotten: the log end must stand still
	quietEnd   int64
	quietSince time.Time
	wait       time.Time // protocol R16: no write before
}

// cause is why a look is due; several add up.
type cause struct {
	source   bool // the source's log is not as expected: compare
	still    bool // something may still arrive that no sequence protects: the log end must stand still first
	marker   bool // which may be a marker
	tooLarge int  // bytes of a batch that the destination does not admit; 0: none
	sequence bool // the sequence was refused
	err      error
}

func (c *cause) add(o cause) {
	c.source, c.still, c.marker = c.source || o.source, c.still || o.still, c.marker || o.marker
	c.tooLarge, c.sequence = max(c.tooLarge, o.tooLarge), c.sequence || o.sequence
	if o.err != nil {
		c.err = o.err
	}
}

// askLook stops the pipeline and has the destination looked at once nothing is in flight; p.mu is held.
func (p *part) askLook(now time.Time, why cause) {
	p.look.cause.add(why)
	if p.pipe.phase == running && p.pipe.doubt() == look {
		p.lookNow(now)
	}
}

// crossSeam has both logs compared before anything more is fetched; p.mu is held. It is no sign of trouble, so it counts
// as no try.
func (p *part) crossSeam(now time.Time) {
	if p.pipe.phase != running { // a look that is under way may have read before
		return
	}
	p.severed = false
	p.look.cause.add(cause{source: true, err: errSevered})
	if p.pipe.doubt() == look {
		p.lookAt(now)
	}
}

var errSevered = mirror.Errorf(mirror.Retriable, "the connection to the source had ended")

// lookNow schedules the look that is due; p.mu is held. The first one is made at once, later ones back off.
func (p *part) lookNow(now time.Time) {
	if p.look.tries > maxLooks {
		p.fail(mirror.Errorf(mirror.KindOf(p.look.cause.err), "no progress at offset %d: %w", p.pipe.next, p.look.cause.err))
		return
	}
	delay := time.Duration(0)
	if p.look.tries > 0 {
		delay = backoff(p.look.tries-1, lookBackoff)
	}
	p.look.tries++
	p.lookAt(now.Add(delay))
}

const maxLooks = 25

func (p *part) lookAt(at time.Time) {
	p.look.due = at
	if p.look.listed || p.look.under {
		return
	}
	p.look.listed = true
	p.src.pool.listLook(p)
}

// lookAgain is for a look that brought nothing; p.mu is held. An outage is retried patiently, then reported; a refusal,
// such as a missing right, is reported at once, for somebody has to act.
func (p *part) lookAgain(now time.Time, err error) {
	if p.look.since.IsZero() {
		p.look.since = now
	}
	hopeless := now.Sub(p.look.since) > patience || mirror.KindOf(err) == mirror.Refused
	if hopeless && p.pipe.phase != closed {
		p.fail(err)
		return
	}
	p.src.pool.log.Debug("partition looked at in vain", p.attrs(mirror.KeyAttempt, p.look.tries, mirror.KeyErr, err)...)
	p.look.tries++
	p.lookAt(now.Add(backoff(p.look.tries, lookBackoff)))
}

// fail ends the pipeline and reports it once; p.mu is held.
func (p *part) fail(err error) {
	if p.pipe.fail(err) == failed {
		p.reportFailure()
	}
}

// reportFailure hands the failure over; p.mu is held. A partition that fails is only watched until its owner wants it
// mirrored again, under a higher state epoch.
func (p *part) reportFailure() {
	pool, t, err := p.src.pool, p.target, p.pipe.failure
	p.failedAt, p.unsure = t.StateEpoch, false
	p.turn++
	p.stopFetching()
	p.seedTo = -1
	if mirror.KindOf(err) == mirror.IdentityBroken {
		p.stats.foreignWrites.Add(1)
	}
	if pool.deps.Failed != nil {
		tp := p.destTP(-1)
		pool.later(func() { pool.deps.Failed(t, pool.named(err, tp)) })
	}
}

// stopFetching takes the partition out of its thread; p.mu is held.
func (p *part) stopFetching() {
	p.fetching, p.ahead = false, nil
	if p.thread != nil {
		p.thread.remove(p)
	}
	p.deactivate()
}

func (p *part) deactivate() {
	if p.active {
		p.active = false
		p.src.pool.active.Add(-1)
	}
}
