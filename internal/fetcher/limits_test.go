package fetcher

import (
	"testing"
	"time"
)

func TestThrottle_HoldsBytesPerSecond(t *testing.T) {
	var limit throttle
	now := time.Now()
	if limit.wait(now) != 0 {
		t.Error("no limit, and yet a wait")
	}
	limit.set(1000)
	sent := int64(0)
	for end := now.Add(60 * time.Second); now.Before(end); {
		if hold := limit.wait(now); hold > 0 {
			now = now.Add(hold)
			continue
		}
		limit.spend(now, 700) // larger than a burst
		sent += 700
	}
	if sent < 57_000 || sent > 63_000 {
		t.Errorf("%d bytes in 60 s at 1000/s", sent)
	}
	limit.set(0)
	if limit.wait(now) != 0 {
		t.Error("a wait after the limit was lifted")
	}
}

func TestBudget_HoldsAreChargedOnce(t *testing.T) {
	b := newBudget(100)
	freed := 0
	h := newHold(b, 80, func() { freed++ })
	h.keep()
	if b.room(30) {
		t.Error("80 of 100 held, and room for 30")
	}
	wait := b.freed()
	h.drop()
	select {
	case <-wait:
		t.Error("woken while somebody holds the memory")
	default:
	}
	h.drop()
	<-wait
	if !b.room(100) || freed != 1 {
		t.Errorf("room for all: %v, freed %d times", b.room(100), freed)
	}
	(*hold)(nil).drop()
}

// Slow partitions together leave half of the memory to the others.
func TestPool_ShareOfSlowPartitions(t *testing.T) {
	pool := NewPool(DefaultConfig(), Deps{})
	for _, slow := range []int64{0, 1, 10, 100, 1000} {
		pool.active.Store(slow)
		if all := pool.share() * slow; all > pool.budget.limit.Load()/2 {
			t.Errorf("%d slow partitions may hold %d bytes", slow, all)
		}
		if pool.share() < int64(pool.partitionSize()) && slow < 100 {
			t.Errorf("%d partitions: a share of %d is less than an answer's part of %d", slow, pool.share(), pool.partitionSize())
		}
	}
}
