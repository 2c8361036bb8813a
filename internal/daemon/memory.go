package daemon

import (
	"os"
	"runtime/debug"
)

// overhead is what the process may use beyond the record data that memory_limit bounds: code, stacks, metadata of
// some ten thousand partitions, garbage not yet collected. SPEC §13 allows 100 MiB; the rest is the runtime's own.
const overhead = 72 << 20

// BoundMemory makes the collector work harder as the process nears its limit, instead of letting the heap double. What
// an operator sets by environment wins (GOMEMLIMIT). It returns what puts the old values back.
func BoundMemory(memoryLimit int64) (restore func() error) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return func() error { return nil }
	}
	before := debug.SetMemoryLimit(memoryLimit + overhead)
	return func() error {
		debug.SetMemoryLimit(before)
		return nil
	}
}
