package fetcher

// fill is a stretch of offsets [from, to) that fillers take, or one replayed marker.
type fill struct {
	from, to int64
	owner    producer
	marker   bool // replay of a source marker
	commit   bool // of a marker
	raised   bool // owner's epoch is one above that of the data before (protocol R10)
	careful  bool // after a marker in doubt: one alone, a look, then the rest (protocol R11)
	counts   [reasons]int64
}

// takeFill hands out the fill at the head of the queue; ready must have said fillIn. Nothing else is handed out before
// filled or unfilled.
func (p *pipeline) takeFill() fill {
	head := p.queue.at(0)
	f := fill{from: head.from, to: head.to, careful: p.careful, owner: p.ownerOf(head)}
	p.filling = true
	if head.kind == ending {
		f.marker, f.commit = true, head.commit
		p.sent = max(p.sent, f.to)
		return f
	}
	for i := range p.queue.len() {
		it := p.queue.at(i)
		if it.kind != hole || i > 0 && p.doubtful(it) {
			break
		}
		f.counts[it.reason] += it.to - it.from
		f.to = it.to
	}
	if p.raise {
		f.owner.epoch++
		f.raised = true
	}
	p.sent = max(p.sent, f.to)
	return f
}

// filled: the destination's log ends at f.to now.
func (p *pipeline) filled(f fill) event {
	p.filling = false
	if p.phase != running {
		p.acked = f.to
		p.next, p.tail = max(p.next, f.to), max(p.tail, f.to)
		return p.settle()
	}
	for p.queue.len() > 0 && p.queue.at(0).from < f.to {
		p.queue.pop()
	}
	p.acked, p.next = f.to, f.to
	p.careful, p.isProven = false, false
	if f.marker {
		delete(p.open, f.owner.id)
	}
	if f.raised {
		p.own.ProducerEpoch, p.own.Sequence = f.owner.epoch, 0
		p.raise = false
	}
	return progress
}

// unfilled: the fill is not finished, and how far it came is not known.
func (p *pipeline) unfilled() event {
	p.filling = false
	return p.doubt()
}
