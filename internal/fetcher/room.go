package fetcher

import (
	"context"
	"math/bits"

	"mirrord/internal/kafka"
	"mirrord/internal/recordbatch"
)

const (
	fetchPart    = 32        // of the memory limit, one fetch answer may take this part
	leastRoom    = 1 << 20   // of a fetch answer
	leastPart    = 128 << 10 // of a partition's queue
	waitingBytes = 96 << 20  // of all queues: more brings no speed
)

// fetchSize is how many bytes one fetch answer may have: small enough that the answers of all threads fit the budget.
func (pool *Pool) fetchSize() int32 {
	limit := pool.budget.limit.Load()
	n := min(int64(pool.cfg.MaxBytes), limit/fetchPart, limit/2/max(1, pool.threads.Load()))
	return int32(max(n, min(leastRoom, int64(pool.cfg.MaxBytes))))
}

// roomToFetch waits until an answer of every thread would still fit; false: ctx has ended.
func (pool *Pool) roomToFetch(ctx context.Context) bool {
	need := int64(pool.fetchSize()) * max(1, pool.threads.Load())
	for !pool.budget.room(need) {
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
	return true
}

// share is how much of one partition may wait before it is left out of the fetch: enough to keep the destination busy, and
// so little that slow partitions together never take more than half of the memory from the others.
func (pool *Pool) share() int64 {
	active := pool.active.Load() + 1
	most := min(pool.budget.limit.Load()/2, waitingBytes) / active
	return max(leastPart, min(2*int64(pool.partitionSize()), most))
}

// partitionSize is how many bytes of one partition a fetch answer may have: all that have something to give get a part of
// each answer. It is a power of two, so that it seldom changes.
func (pool *Pool) partitionSize() int32 {
	each := max(int64(pool.fetchSize())/(pool.active.Load()+1), leastPart)
	return int32(min(int64(pool.cfg.PartitionMaxBytes), 1<<(bits.Len64(uint64(each))-1)))
}

func (pool *Pool) codec() recordbatch.Codec { return kafka.Codec }
