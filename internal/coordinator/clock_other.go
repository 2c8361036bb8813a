//go:build !linux

package coordinator

import "time"

var processStart = time.Now()

// bootTime is the time since the process started. Where the system's monotonic clock stands still during suspend, so does
// this one: a host that was suspended for longer than the session must not be trusted there.
func bootTime() time.Duration { return time.Since(processStart) }
