package coordinator

import (
	"sync/atomic"
	"time"

	"mirrord/internal/mirror"
)

// errNoLease is what effects get when the right to act is gone (protocol R16).
var errNoLease = mirror.Errorf(mirror.Fenced, "the lease is over: the group has not confirmed this instance in time")

// lease is the right to act on the destination. It ends before the group session can: the coordinator of the group counts
// the session from when it gets a heartbeat, the lease counts a shorter time from before it was sent. The clock goes on
// while the host is suspended and while the process is stopped, so an instance that wakes up late finds its lease over.
type lease struct {
	now   func() time.Duration // monotonic; suspend counts
	until atomic.Int64         // of that clock; 0: none
}

func newLease() *lease { return &lease{now: bootTime} }

// renew extends the lease to span after began, which was read before the heartbeat was sent. It never shortens it.
func (l *lease) renew(began, span time.Duration) {
	until := int64(began + span)
	for {
		old := l.until.Load()
		if old >= until || l.until.CompareAndSwap(old, until) {
			return
		}
	}
}

// end gives the lease up.
func (l *lease) end() { l.until.Store(0) }

// left is the time until the lease ends; not positive: it is over.
func (l *lease) left() time.Duration { return time.Duration(l.until.Load()) - l.now() }

// check is nil while the holder may act. It is called right before each effect leaves.
func (l *lease) check() error {
	if l.left() <= 0 {
		return errNoLease
	}
	return nil
}
