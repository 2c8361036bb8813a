package fetcher

import (
	"fmt"
	"math"

	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// phase is how far a partition's pipeline may go.
type phase uint8

const (
	probing  phase = iota // where to go on is not known: nothing is written before a look (protocol R3, R6)
	doubting              // as probing, but answers are still to come first
	running
	closed // failed or stopped: nothing is written any more
)

// pipeline is the write side of one partition: what waits, what is in flight, and under which identity the next batch
// goes. It is pure: it knows no client and no clock, and whoever calls it holds the partition's lock.
//
// Invariants: items in queue follow next without a gap; the writes in flight lie in [acked, next), in order; while a hole
// or a marker is being written nothing is in flight; two writers are never in flight together (protocol R14).
type pipeline struct {
	phase  phase
	queue  queue
	flight flight
	tail   int64 // offset that comes into the queue next
	next   int64 // offset that is written next
	acked  int64 // the destination's log end as acknowledged
	sent   int64 // highest next offset that any attempt so far has aimed at

	own      recordbatch.Identity // sequence: the next one
	others   map[int64]counter    // exact mode: next sequence of each shifted id
	proven   producer             // whose batch was acknowledged since the last look or switch (protocol R4)
	isProven bool
	raise    bool // the next filler raises the producer epoch (protocol R10)
	careful  bool // the next marker goes alone (protocol R11)
	filling  bool // a fill has been handed out
	open     map[int64]openTxn
	inquiry  *inquiry // about the hole at the head; nil: none is going on
	failure  error

	// limits that the caller sets
	aloneBelow int64 // record times below, ms: one in flight, since the broker forgets by record time
	joinTo     int   // bytes of a joined batch; 0: no joining
	markers    bool  // holes are filled by markers, which can raise the producer epoch
}

// counter is the place of a shifted producer id.
type counter struct {
	epoch int16
	next  int32
}

// place is where a look found the destination.
type place struct {
	end    int64
	own    recordbatch.Identity
	others map[int64]counter
	open   map[int64]openTxn
	// careful: a marker was in doubt.
	careful bool
}

// resume goes on at a place. What waited is dropped: it is fetched again from there.
func (p *pipeline) resume(at place) {
	p.queue.drop()
	p.phase = running
	p.tail, p.next, p.acked, p.sent = at.end, at.end, at.end, at.end
	p.own, p.others, p.open, p.inquiry = at.own, at.others, at.open, nil
	p.isProven, p.raise, p.careful = false, p.markers, at.careful
}

// push appends what was planned from tail on.
func (p *pipeline) push(items []item) {
	if len(items) == 0 {
		return
	}
	if items[0].from != p.tail {
		panic(fmt.Sprintf("fetcher: items from %d pushed at %d", items[0].from, p.tail))
	}
	p.queue.push(items)
	p.tail = items[len(items)-1].to
}

// step is what the head of a queue asks for.
type step uint8

const (
	wait step = iota // for items, answers or a look
	send
	fillIn // the head is a hole or a marker, and nothing is in flight
	ask    // the head is a hole that may hide a marker: the source knows
)

// ready says what can be done now.
func (p *pipeline) ready() step {
	if p.phase != running || p.filling || p.queue.len() == 0 {
		return wait
	}
	head := p.queue.at(0)
	if head.kind == hole || head.kind == ending {
		switch {
		case p.flight.n > 0 || p.inquiry != nil:
			return wait
		case p.doubtful(head):
			return ask
		}
		return fillIn
	}
	owner := p.ownerOf(head)
	switch n := p.flight.n; {
	case n == 0:
		return send
	case n >= maxFlight, p.flight.newest().owner != owner:
		return wait
	case !p.isProven || p.proven != owner: // protocol R4
		return wait
	case head.maxTime < p.aloneBelow || p.flight.newest().maxTime < p.aloneBelow:
		return wait
	}
	return send
}

// ownerOf is the producer under which an item goes.
func (p *pipeline) ownerOf(i *item) producer {
	if i.owner == (producer{}) {
		return producer{p.own.ProducerID, p.own.ProducerEpoch}
	}
	return i.owner
}

// take hands out the next write; ready must have said send. The write is in flight from now on. j joins neighbours; it
// may be nil.
func (p *pipeline) take(j *joining) *write {
	head := p.queue.at(0)
	w := write{from: head.from, owner: p.ownerOf(head), arrived: head.arrived, seed: head.kind == seeds}
	if j == nil || p.joinTo <= 0 || !j.join(p, &w) {
		w.to, w.batch, w.hold, w.maxTime, w.epoch = head.to, head.batch, head.hold, head.maxTime, head.epoch
		w.records = w.batch.Count()
		p.queue.pop()
	}
	foreign := w.owner != producer{p.own.ProducerID, p.own.ProducerEpoch}
	w.batch.Patch(recordbatch.Identity{ProducerID: w.owner.id, ProducerEpoch: w.owner.epoch, Sequence: p.sequence(w.owner)}, foreign)
	p.advance(w.owner, w.records)
	if foreign {
		p.opened(&w)
	}
	if w.seed {
		w.records = 0
	}
	p.next, p.sent = w.to, max(p.sent, w.to)
	p.flight.push(w)
	return p.flight.newest()
}

// sequence is the next one of a producer; an unknown one begins at 0 (protocol R2).
func (p *pipeline) sequence(o producer) int32 {
	if o.id == p.own.ProducerID {
		return p.own.Sequence
	}
	if c := p.others[o.id]; c.epoch == o.epoch {
		return c.next
	}
	return 0
}

// advance moves a producer's sequence by n records; sequences wrap at 2^31.
func (p *pipeline) advance(o producer, n int32) {
	next := int32((int64(p.sequence(o)) + int64(n)) & math.MaxInt32)
	if o.id == p.own.ProducerID {
		p.own.Sequence = next
		return
	}
	if p.others == nil {
		p.others = map[int64]counter{}
	}
	p.others[o.id] = counter{o.epoch, next}
	if len(p.others) > maxProducers { // a forgotten one that goes on is refused, looked up and then known again
		for id := range p.others {
			if id != o.id {
				delete(p.others, id)
				break
			}
		}
	}
}

const maxProducers = 10_000 // remembered per partition

// verdict is what an answer says about a write.
type verdict uint8

const (
	stored    verdict = iota
	refused           // not stored, by a reason that a look can clear up: leader moved, out of order, epoch
	ambiguous         // stored or not
	tooLarge          // not stored: larger than the destination admits
	damaged           // not stored: the bytes did not survive their way
	hopeless          // not stored, and only an operator can help
)

// answer is what came back for one write.
type answer struct {
	verdict    verdict
	base       int64 // stored: offset of the first record
	appendTime int64 // stored: −1 under CreateTime
	err        error // otherwise
}

// event is what follows from an answer.
type event uint8

const (
	nothing event = iota
	progress
	look   // all answers are there and a look at the destination is due
	failed // failure says why
)

// answered takes the answer to the oldest write in flight, which it returns; its hold is the caller's.
func (p *pipeline) answered(a answer) (write, event) {
	w := p.flight.pop()
	if p.phase == closed || p.phase == doubting {
		if a.verdict == stored && a.base == w.from && p.acked == w.from {
			p.acked = w.to
		}
		return w, p.settle()
	}
	if a.verdict != stored {
		if a.verdict == hopeless {
			return w, p.fail(a.err)
		}
		p.phase = doubting
		return w, p.settle()
	}
	switch {
	case a.base > w.from:
		return w, p.fail(mirror.Errorf(mirror.IdentityBroken,
			"the record of offset %d was stored at offset %d: %w", w.from, a.base, stranger{w.from}).
			WithHint(`once nobody writes there any more, "mirrord recover --reseed" copies the topic again`))
	case a.base < w.from: // a repeat of something older: look again (protocol R3)
		p.phase = doubting
		return w, p.settle()
	case a.appendTime >= 0 && a.appendTime != w.maxTime: // a repeat is answered with its own time (protocol R8)
		return w, p.fail(mirror.Errorf(mirror.IdentityBroken,
			"the destination stamps records with its own time, from offset %d on", w.from).
			WithHint("set message.timestamp.type=CreateTime on the destination topic, then recover it"))
	}
	p.acked = w.to
	p.proven, p.isProven = w.owner, true
	return w, progress
}

// settle turns doubt into a due look once nothing is in flight.
func (p *pipeline) settle() event {
	if p.phase == doubting && p.flight.n == 0 && !p.filling {
		p.phase = probing
		return look
	}
	return nothing
}

// doubt asks for a look, whatever the reason.
func (p *pipeline) doubt() event {
	if p.phase == running {
		p.phase = doubting
	}
	return p.settle()
}

// fail ends the pipeline.
func (p *pipeline) fail(err error) event {
	if p.phase == closed {
		return nothing
	}
	p.close()
	p.failure = err
	return failed
}

// close drops what waits. What is in flight is still answered.
func (p *pipeline) close() {
	p.phase, p.inquiry = closed, nil
	p.queue.drop()
	p.tail = p.next
}

// idle: nothing of this partition is on its way to the destination.
func (p *pipeline) idle() bool { return p.flight.n == 0 && !p.filling }
