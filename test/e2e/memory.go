package e2e

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// peakMemory is the most that a process has had resident, in bytes, since it began to run its program.
func peakMemory(pid int) (bytes int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(after, &bytes); err != nil {
		return 0, fmt.Errorf("process %d tells no VmHWM: %w", pid, err)
	}
	return bytes << 10, nil
}

// watchMemory follows the peak of a process that ends by itself, whose usage as the kernel counts it would include what
// its parent had. The function gives it after the end.
func watchMemory(pid int) func() int64 {
	last, ended, done := int64(0), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			if bytes, err := peakMemory(pid); err == nil {
				last = bytes
			}
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
	}()
	return func() int64 {
		close(ended)
		<-done
		return last
	}
}
