package fetcher

import (
	"fmt"
	"time"
)

// Config holds the limits of the data path.
type Config struct {
	Threads           int           // fetch threads per mirror and source broker
	MaxWait           time.Duration // how long a source broker may wait for records
	MinBytes          int32
	MaxBytes          int32 // of one fetch answer
	PartitionMaxBytes int32 // of one partition in an answer; as much of a partition may wait here
	MemoryLimit       int64 // bytes of records held at once, all mirrors together
	Throttle          int64 // bytes/s written, all mirrors together; 0: none
	// RequestTimeout bounds each request to either cluster.
	RequestTimeout time.Duration
	// TakeoverWait is how long requests of a former owner may still arrive after its lease has ended: lease + request
	// timeout (protocol R16).
	TakeoverWait time.Duration
}

// DefaultConfig holds the defaults of SPEC §4.
func DefaultConfig() Config {
	return Config{
		Threads: 1, MaxWait: 500 * time.Millisecond, MinBytes: 1, MaxBytes: 50 << 20, PartitionMaxBytes: 8 << 20,
		MemoryLimit: 512 << 20, RequestTimeout: 10 * time.Second, TakeoverWait: 20 * time.Second,
	}
}

// Validate names each value that is out of range. key is the prefix of the names.
func (c Config) Validate(key string) (errs []error) {
	check := func(ok bool, name, rule string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s%s: %s", key, name, rule))
		}
	}
	check(c.Threads >= 1 && c.Threads <= 64, "fetch.threads", "from 1 to 64")
	check(c.MaxWait >= time.Millisecond && c.MaxWait <= time.Minute, "fetch.max_wait", "from 1ms to 1m")
	check(c.MinBytes >= 1, "fetch.min_bytes", "at least 1")
	check(c.MaxBytes >= 64<<10, "fetch.max_bytes", "at least 64KiB")
	check(c.PartitionMaxBytes >= 16<<10, "fetch.partition_max_bytes", "at least 16KiB")
	check(c.MemoryLimit >= 16<<20, "memory_limit", "at least 16MiB")
	check(c.Throttle >= 0, "throttle", "0 (none) or more")
	return errs
}

// Times and sizes that are no settings.
const (
	maxRequest    = 4 << 20                // of a Produce request, unless one batch is larger
	requestDepth  = 5                      // Produce requests unanswered per connection
	joinLimit     = 500_000                // bytes of a joined batch
	largeBatch    = 64 << 10               // from this size on, a partition may use the broker's second connection
	idleLook      = 100 * time.Millisecond // after so long without an append the log end is read first (protocol R21)
	quiesce       = 5 * time.Second        // of unchanged log end after a marker in doubt (protocol R11)
	patience      = 30 * time.Second       // an outage is retried for so long before it is reported
	expiryMargin  = 2 * time.Hour          // records that old go one at a time: the broker may forget the identity
	lookBackoff   = 50 * time.Millisecond
	maxBackoff    = 5 * time.Second
	corruptTries  = 6
	shortestPoll  = 20 * time.Millisecond  // of the source while a partition is left out for room
	shortPoll     = 100 * time.Millisecond // while one is left out for a look at the destination
	drainLimit    = 8 * time.Second
	watchInterval = 3 * time.Second
	idleInterval  = 10 * time.Second
	trimInterval  = time.Second
)
