package coordinator

import "sync"

// mailbox holds what the event loop has to do. Posting never blocks, so callers may hold locks of their own and the loop
// may post to itself.
type mailbox struct {
	mu     sync.Mutex
	items  []func()
	closed bool
	wake   chan struct{} // capacity 1; a token says that there may be items
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

// post hands f to the loop. It reports false once the loop has ended; f is not run then.
func (m *mailbox) post(f func()) bool {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return false
	}
	m.items = append(m.items, f)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
	return true
}

// drain runs what was posted, on the caller's goroutine, and reports whether there was anything.
func (m *mailbox) drain() bool {
	m.mu.Lock()
	items := m.items
	m.items = nil
	m.mu.Unlock()
	for _, f := range items {
		f()
	}
	return len(items) > 0
}

// close ends the mailbox and runs what is left.
func (m *mailbox) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.drain()
}
