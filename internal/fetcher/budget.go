package fetcher

import (
	"sync"
	"sync/atomic"
)

// budget bounds the bytes of records that are held at once, all mirrors together. What has arrived is charged even when
// it goes over the limit: bytes in memory cannot be refused. Who wants to fetch asks first whether there is room.
type budget struct {
	limit atomic.Int64
	used  atomic.Int64

	mu      sync.Mutex
	waiting []chan struct{} // each closed once, when room may have come
}

func newBudget(limit int64) *budget {
	b := &budget{}
	b.limit.Store(limit)
	return b
}

// room reports whether n more bytes fit.
func (b *budget) room(n int64) bool { return b.used.Load()+n <= b.limit.Load() }

func (b *budget) take(n int64) { b.used.Add(n) }

func (b *budget) give(n int64) {
	b.used.Add(-n)
	b.mu.Lock()
	waiting := b.waiting
	b.waiting = nil
	b.mu.Unlock()
	for _, c := range waiting {
		close(c)
	}
}

// freed gives a channel that is closed when memory is given back. Take it before asking for room.
func (b *budget) freed() <-chan struct{} {
	c := make(chan struct{})
	b.mu.Lock()
	b.waiting = append(b.waiting, c)
	b.mu.Unlock()
	return c
}

// setLimit changes the limit; a lower one takes effect as memory is given back.
func (b *budget) setLimit(n int64) {
	b.limit.Store(n)
	b.give(0)
}

// hold is memory that batches lie in, shared by them and charged once. The last holder's drop gives it back.
type hold struct {
	refs   atomic.Int32
	bytes  int64
	budget *budget
	free   func() // may be nil
}

// newHold charges bytes; the caller is the first holder.
func newHold(b *budget, bytes int64, free func()) *hold {
	h := &hold{bytes: bytes, budget: b, free: free}
	h.refs.Store(1)
	b.take(bytes)
	return h
}

func (h *hold) keep() *hold {
	h.refs.Add(1)
	return h
}

// drop may be called on nil: holes hold no memory.
func (h *hold) drop() {
	if h == nil || h.refs.Add(-1) > 0 {
		return
	}
	if h.free != nil {
		h.free()
	}
	h.budget.give(h.bytes)
}
