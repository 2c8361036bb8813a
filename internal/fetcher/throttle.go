package fetcher

import (
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// throttle limits the bytes written per second. A write of any size may leave while there is no debt, and its bytes are
// owed afterwards, so that no batch is too large for the limit.
type throttle struct{ limiter atomic.Pointer[rate.Limiter] }

// set changes the limit; 0: none.
func (t *throttle) set(bytesPerSecond int64) {
	old := t.limiter.Load()
	switch {
	case bytesPerSecond <= 0:
		t.limiter.Store(nil)
	case old == nil || old.Limit() != rate.Limit(bytesPerSecond):
		t.limiter.Store(rate.NewLimiter(rate.Limit(bytesPerSecond), int(max(bytesPerSecond/10, 1))))
	}
}

// wait is how long nothing may leave; 0: go on.
func (t *throttle) wait(now time.Time) time.Duration {
	l := t.limiter.Load()
	if l == nil {
		return 0
	}
	tokens := l.TokensAt(now)
	if tokens >= 0 {
		return 0
	}
	return time.Duration(-tokens/float64(l.Limit())*float64(time.Second)) + time.Millisecond
}

// spend owes n bytes.
func (t *throttle) spend(now time.Time, n int64) {
	l := t.limiter.Load()
	if l == nil {
		return
	}
	for burst := int64(l.Burst()); n > 0; n -= burst {
		l.ReserveN(now, int(min(n, burst)))
	}
}
