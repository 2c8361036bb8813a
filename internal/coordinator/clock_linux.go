package coordinator

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is the time since boot, suspend included.
func bootTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // a constant clock id that Linux has had since 2.6.39
	}
	return time.Duration(t.Nano())
}
