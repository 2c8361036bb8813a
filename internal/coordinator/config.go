package coordinator

import (
	"errors"
	"fmt"
	"time"

	"mirrord/internal/mirror"
)

// Config tunes membership and retries.
type Config struct {
	GroupID        string
	InstanceID     string        // static membership; empty: none
	SessionTimeout time.Duration // of the classic group protocol
	Retry          mirror.Backoff
}

// Validate reports every problem at once, each with its key.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.GroupID != "", "group_id: must not be empty")
	check(c.SessionTimeout >= time.Second, "session_timeout: must be at least 1s, got %v", c.SessionTimeout)
	check(c.Retry.Initial > 0, "retry.initial_backoff: must be positive, got %v", c.Retry.Initial)
	check(c.Retry.Max >= c.Retry.Initial, "retry.max_backoff: must be at least initial_backoff, got %v", c.Retry.Max)
	check(c.Retry.MaxAttempts >= 0, "retry.max_attempts: must not be negative, got %d", c.Retry.MaxAttempts)
	return errors.Join(errs...)
}

// heartbeat is the pause between heartbeats. A member learns of a rebalance by one, and a shard that moves is nobody's
// until all have learnt of it.
func (c Config) heartbeat() time.Duration { return max(c.SessionTimeout/20, 200*time.Millisecond) }

// leaseTime is how long a successful heartbeat lets effects leave. The rest of the session is for what left at the last
// moment, and for clocks that run apart.
func (c Config) leaseTime() time.Duration { return c.SessionTimeout - c.SessionTimeout/5 }
