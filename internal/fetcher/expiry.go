package fetcher

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// memory is how long the destination remembers producers (protocol R4): producer.id.expiration.ms, the shortest of its
// brokers, asked for now and then. Where it may not be read, Kafka's default is taken.
type memory struct {
	mu    sync.Mutex // guards what follows
	lasts time.Duration
	asked time.Time
}

const (
	defaultExpiry = 24 * time.Hour
	askExpiry     = 10 * time.Minute
	expiryKey     = "producer.id.expiration.ms"
)

// expiry is the time after which a producer may be forgotten. It never blocks: what is asked for now counts later.
func (pool *Pool) expiry(now time.Time) time.Duration {
	m := &pool.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.asked) > askExpiry && !pool.stopping() {
		m.asked = now
		pool.workers.Go(func() { pool.askExpiry(pool.ctx) })
	}
	if m.lasts == 0 {
		return defaultExpiry
	}
	return m.lasts
}

func (pool *Pool) askExpiry(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pool.cfg.RequestTimeout)
	defer cancel()
	brokers, err := pool.deps.Destination.BrokerConfigs(ctx, expiryKey)
	if err != nil {
		return
	}
	shortest := time.Duration(0)
	for _, configs := range brokers {
		ms, err := strconv.ParseInt(configs.Entries[expiryKey].Value, 10, 64)
		if d := time.Duration(ms) * time.Millisecond; err == nil && ms > 0 && (shortest == 0 || d < shortest) {
			shortest = d
		}
	}
	pool.memory.mu.Lock()
	defer pool.memory.mu.Unlock()
	pool.memory.lasts = shortest
}
