package fetcher

import (
	"context"

	"mirrord/internal/kafka"
	"mirrord/internal/recordbatch"
)

const (
	fetchPart = 32        // of the memory limit, one fetch answer may take this part
	leastRoom = 1 << 20   // of a fetch answer
	leastPart = 128 << 10 // of a partition's queue
)

// fetchSize is how many bytes one fetch answer may have: small enough that the answers of all threads fit the budget.
func (pool *Pool) fetchSize() int32 {
	limit := pool.budget.limit.Load()
	n := min(int64(pool.cfg.MaxBytes), limit/fetchPart, limit/2/max(1, pool.threads.Load()))
	return int32(max(n, min(leastRoom, int64(pool.cfg.MaxBytes))))
}

// roomToFetch reports whether an answer of every thread would still fit; if not, it waits for memory to be given back.
func (pool *Pool) roomToFetch(ctx context.Context) bool {
	need := int64(pool.fetchSize()) * max(1, pool.threads.Load())
	for {
		freed := pool.budget.freed()
		if pool.budget.room(need) {
			return true
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return false
		}
	}
}

// share is how much of one partition may wait: slow partitions together leave half of the memory to the others.
func (pool *Pool) share() int64 {
	part := pool.budget.limit.Load() / 2 / (pool.active.Load() + 1)
	return max(leastPart, min(part, int64(pool.cfg.PartitionMaxBytes)))
}

// partitionSize is how many bytes of one partition a fetch answer may have.
func (pool *Pool) partitionSize() int32 {
	return int32(min(int64(pool.cfg.PartitionMaxBytes), pool.share()))
}

func (pool *Pool) codec() recordbatch.Codec { return kafka.Codec }
