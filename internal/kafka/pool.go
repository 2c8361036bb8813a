package kafka

import (
	"slices"
	"sync"
)

// buffers keeps response buffers for reuse: at most retain bytes of them, whatever was handed out before. Buffers of
// very different sizes do not stand in for one another, so that a short answer never pins a long buffer.
type buffers struct {
	retain int

	mu   sync.Mutex
	free [][]byte // ascending capacity
	held int      // sum of their capacities
}

const (
	defaultRetain = 64 << 20
	minBuffer     = 4 << 10
	maxFree       = 128 // of short buffers there are never many worth keeping
)

// get gives n bytes of arbitrary content.
func (p *buffers) get(n int) []byte {
	p.mu.Lock()
	i, _ := slices.BinarySearchFunc(p.free, n, func(b []byte, n int) int { return cap(b) - n })
	if i < len(p.free) && cap(p.free[i]) <= max(2*n, 4*minBuffer) {
		b := p.free[i]
		p.free = slices.Delete(p.free, i, i+1)
		p.held -= cap(b)
		p.mu.Unlock()
		return b[:n]
	}
	p.mu.Unlock()
	return make([]byte, n, max(n+n/8, minBuffer))
}

// put takes a buffer back, or leaves it to the garbage collector.
func (p *buffers) put(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) >= maxFree || p.held+cap(b) > p.retain {
		return
	}
	i, _ := slices.BinarySearchFunc(p.free, cap(b), func(b []byte, n int) int { return cap(b) - n })
	p.free = slices.Insert(p.free, i, b)
	p.held += cap(b)
}
