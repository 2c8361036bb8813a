package mirror

import (
	"math"
	"time"
)

// Backoff is the retry schedule of FAILED partitions: Initial × 2^attempt up to Max, each ±20 %. MaxAttempts 0: no
// retry at all.
type Backoff struct {
	Initial, Max time.Duration
	MaxAttempts  int
}

// Delay is the pause before retry number attempt (from 0). random is uniform in [0, 1).
func (b Backoff) Delay(attempt int, random float64) time.Duration {
	d := float64(b.Initial) * math.Pow(2, float64(min(attempt, 60)))
	return time.Duration(min(d, float64(b.Max)) * (0.8 + 0.4*random))
}

// Exhausted reports whether no retry is left after that many attempts.
func (b Backoff) Exhausted(attempts int) bool { return attempts >= b.MaxAttempts }
