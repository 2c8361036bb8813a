package fetcher

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// world drives one or two writers of one partition against a modelled broker, with every fault that the protocol names:
// lost answers, requests that outlive their connection, forgotten producer state, takeovers while the old owner lives.
type world struct {
	t       *rapid.T
	src     *modelSource
	broker  *modelBroker
	writers []*writer
	late    []func() // requests without a connection: each may still arrive
	claim   int32
	old     bool // record times are beyond producer.id.expiration.ms
	faults  bool // a broker may refuse
	calm    bool // nothing goes wrong
	harmed  bool // a residue that the protocol names has come true, or a stranger has written
}

// writer is a pipeline with its connection.
type writer struct {
	p   *part
	net []*sent // on the connection, in order
}

// sent is a request on a connection.
type sent struct {
	batch    recordbatch.Batch
	arrived  bool
	answered answer
}

func (w *world) newWriter() *writer {
	w.claim++
	wr := &writer{p: testPart(w.src.exact)}
	wr.p.target.Claim = w.claim
	wr.p.look.entry = true
	wr.p.coordinator = -1
	return wr
}

func copyBatch(b recordbatch.Batch) recordbatch.Batch { return slices.Clone(b) }

// look is protocol R3: producers first, log end second; requests may arrive in between.
func (w *world) look(wr *writer) {
	p := wr.p
	if p.pipe.phase != probing {
		return
	}
	if p.look.cause.still { // quiesce: what can arrive has arrived
		w.settleLate(wr)
	}
	producers := w.broker.describe()
	if len(w.late) > 0 && rapid.Bool().Draw(w.t, "arrives during the look") {
		w.arrive(0)
	}
	at := kafka.ResumePoint{Producers: producers, LogEnd: int64(len(w.broker.log))}
	if !w.tailAgrees() {
		p.pipe.fail(mirror.Errorf(mirror.IdentityBroken, "tail differs"))
		return
	}
	p.pipe.resume(p.place(at))
	p.pipe.joinTo = joinLimit
	if w.old {
		p.pipe.aloneBelow = 1 << 60
	}
	p.look = lookState{}
}

// tailAgrees stands for the comparison of the logs (protocol R7).
func (w *world) tailAgrees() bool {
	for i, v := range w.broker.log {
		if !w.src.agrees(i, v) {
			return false
		}
	}
	return true
}

// settleLate lets each late marker and batch arrive or vanish.
func (w *world) settleLate(*writer) {
	for len(w.late) > 0 {
		if rapid.Bool().Draw(w.t, "vanishes") {
			w.late = w.late[1:]
			continue
		}
		w.arrive(0)
	}
}

func (w *world) arrive(i int) {
	f := w.late[i]
	w.late = slices.Delete(w.late, i, i+1)
	f()
}

// fetch plans some batches.
func (w *world) fetch(wr *writer) {
	p := &wr.p.pipe
	if p.phase != running || p.queue.len() > 12 {
		return
	}
	n := rapid.IntRange(1, 4).Draw(w.t, "batches")
	items, err := wr.p.plan.plan(p.tail, fetched{records: w.src.fetch(p.tail, n), bound: w.src.end(), hold: testHold()})
	if err != nil {
		w.t.Fatalf("plan at %d: %v", p.tail, err)
	}
	p.push(items)
	if len(items) == 0 && p.tail < w.src.end() { // an empty tail
		p.push([]item{{kind: hole, from: p.tail, to: w.src.end(), maxTime: -1, epoch: -1}})
	}
}

// write sends what may be sent.
func (w *world) write(wr *writer) {
	p := &wr.p.pipe
	switch p.ready() {
	case send:
		var j *joining
		if rapid.Bool().Draw(w.t, "join") {
			j = &joining{budget: newBudget(1 << 30)}
		}
		b := p.take(j)
		wr.net = append(wr.net, &sent{batch: copyBatch(b.batch)})
	case fillIn:
		w.fill(wr)
	}
}

// fill writes markers one by one; it may end in doubt anywhere.
func (w *world) fill(wr *writer) {
	p := wr.p
	f := p.pipe.takeFill()
	at := f.from
	if int64(len(w.broker.log)) != at { // R11: only where the log ends
		p.look.cause.add(cause{err: fmt.Errorf("log end is not %d", at)})
		p.pipe.unfilled()
		return
	}
	write := func() error { return w.broker.marker(f.owner, p.coordinator) }
	for ; at < f.to; at++ {
		luck := 15
		if !w.calm {
			luck = rapid.IntRange(0, 15).Draw(w.t, "marker")
		}
		switch luck {
		case 0: // the answer is lost
			write()
		case 1: // so is the request, perhaps for ever
			owner, coordinator := f.owner, p.coordinator
			w.late = append(w.late, func() {
				if w.broker.marker(owner, coordinator) == nil && !w.tailAgrees() {
					w.harmed = true // the residue of R11: a late twin
				}
			})
		default:
			if err := write(); err != nil {
				p.look.cause.add(cause{err: err})
				p.pipe.unfilled()
				return
			}
			continue
		}
		p.pipe.acked = at
		p.look.cause.add(cause{still: true, marker: true, err: fmt.Errorf("marker in doubt")})
		p.pipe.unfilled()
		return
	}
	p.pipe.filled(f)
}

// deliver lets the oldest request of the connection arrive, or the oldest answer be read.
func (w *world) deliver(wr *writer) {
	for _, s := range wr.net {
		if s.arrived {
			continue
		}
		s.arrived = true
		if w.faults && rapid.IntRange(0, 9).Draw(w.t, "refused") == 0 { // like a leader that has just moved
			s.answered = answer{verdict: refused, err: fmt.Errorf("refused")}
			return
		}
		s.answered = w.broker.produce(s.batch)
		return
	}
}

func (w *world) answer(wr *writer) {
	if len(wr.net) == 0 || !wr.net[0].arrived {
		return
	}
	a := wr.net[0].answered
	wr.net = wr.net[1:]
	w.took(wr, a)
}

func (w *world) took(wr *writer, a answer) {
	written, _ := wr.p.pipe.answered(a)
	if a.verdict == ambiguous && w.old {
		wr.p.look.cause.still = true
	}
	_ = written
}

// cut closes the connection: requests that have not arrived may arrive later, and no answer comes.
func (w *world) cut(wr *writer) {
	for _, s := range wr.net {
		if !s.arrived {
			w.late = append(w.late, func() { w.broker.produce(copyBatch(s.batch)) })
		}
	}
	n := len(wr.net)
	wr.net = nil
	for range n {
		w.took(wr, answer{verdict: ambiguous, err: fmt.Errorf("connection closed")})
	}
}

// check: every offset of the destination is as at the source, or a writer that goes on will say FAILED.
func (w *world) check() {
	if !w.tailAgrees() && !w.harmed {
		w.t.Fatalf("the log differs from the source's:\n%q\n%q", w.broker.log, w.src.log[:min(len(w.src.log), len(w.broker.log)+3)])
	}
}

// finish runs one writer without faults until it is level or has failed.
func (w *world) finish(wr *writer) {
	for range 20_000 {
		p := &wr.p.pipe
		if p.phase == running && p.idle() && p.acked == w.src.end() && int64(len(w.broker.log)) != p.acked {
			p.doubt() // the look at idle partitions (protocol R21)
		}
		if p.phase == closed || p.phase == running && p.acked == w.src.end() {
			return
		}
		w.look(wr)
		w.fetch(wr)
		w.write(wr)
		w.deliver(wr)
		w.answer(wr)
		w.check()
	}
	w.t.Fatalf("no end in sight: phase %d next %d acked %d of %d", wr.p.pipe.phase, wr.p.pipe.next, wr.p.pipe.acked, w.src.end())
}

func drawSource(t *rapid.T, exact bool) *modelSource {
	src := &modelSource{exact: exact, gone: map[int]string{}}
	const at = 1000
	epochs := map[int64]int16{}
	for range rapid.IntRange(1, 30).Draw(t, "length") {
		n := rapid.IntRange(1, 5).Draw(t, "n")
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0:
			src.gap(n)
		case 1:
			id := rapid.Int64Range(70, 72).Draw(t, "producer")
			epochs[id] += int16(rapid.IntRange(0, 1).Draw(t, "epoch")) // brokers of today raise it with each transaction
			src.marker(id, epochs[id], rapid.Bool().Draw(t, "commit"))
		case 3:
			id := rapid.Int64Range(70, 72).Draw(t, "producer")
			src.transactional(id, epochs[id], n, false)
		case 2:
			src.holed(n, at, func(int) bool { return rapid.Bool().Draw(t, "kept") })
		default:
			src.data(n, at)
		}
	}
	return src
}

// Whatever happens to requests, answers and owners, the destination's log equals the source's or the pipeline has failed.
func TestPipeline_LogEqualsSourceOrFailed(t *testing.T) {
	for _, mode := range []string{"committed", "exact", "old records"} {
		t.Run(mode, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := &world{t: t, src: drawSource(t, mode == "exact"), broker: newModelBroker(), faults: true, old: mode == "old records"}
				w.writers = []*writer{w.newWriter()}
				for range rapid.IntRange(0, 150).Draw(t, "steps") {
					w.act()
					w.check()
				}
				w.faults = false
				wr := w.writers[len(w.writers)-1]
				w.cut(wr)
				w.settleLate(wr)
				w.finish(wr)
				if wr.p.pipe.phase == closed && !w.harmed {
					t.Fatalf("failed without a cause: %v", wr.p.pipe.failure)
				}
				if wr.p.pipe.phase != closed && !w.tailAgrees() {
					t.Fatalf("level, but not equal")
				}
			})
		})
	}
}

// takeOver gives the partition another owner. While the broker may forget the identity, the former owner's lease has ended
// and its requests have had their time before the new one writes (protocol R16).
func (w *world) takeOver() {
	if w.old {
		w.cut(w.writers[len(w.writers)-1])
	}
	wr := w.newWriter()
	wr.p.look.cause.still = w.old
	w.writers = append(w.writers, wr)
}

// act lets one thing happen.
func (w *world) act() {
	wr := w.writers[len(w.writers)-1]
	if len(w.writers) > 1 && !w.old && rapid.IntRange(0, 3).Draw(w.t, "old owner acts") == 0 {
		wr = w.writers[len(w.writers)-2]
	}
	switch rapid.IntRange(0, 14).Draw(w.t, "action") {
	case 0, 1:
		w.fetch(wr)
	case 2, 3, 4:
		w.write(wr)
	case 5, 6:
		w.deliver(wr)
	case 7, 8:
		w.answer(wr)
	case 9:
		w.cut(wr)
	case 10:
		if len(w.late) > 0 {
			w.arrive(rapid.IntRange(0, len(w.late)-1).Draw(w.t, "which"))
		}
	case 11:
		w.look(wr)
	case 12:
		w.src.compact(int64(len(w.broker.log)), rapid.IntRange(0, 10).Draw(w.t, "compacted"))
	case 13:
		switch rapid.IntRange(0, 29).Draw(w.t, "rare") {
		case 0, 1:
			w.takeOver()
		case 2:
			w.broker.stranger()
			w.harmed = true
		}
	case 14:
		if w.old {
			w.broker.forget()
		}
	}
}
