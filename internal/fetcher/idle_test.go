package fetcher

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Neither goroutines nor requests grow with the number of idle partitions.
func TestPool_IdlePartitionsCostNothing(t *testing.T) {
	const partitions = 3000
	r := newRig(t, map[string]int32{"idle": partitions})
	ts := r.targets("idle")
	before := runtime.NumGoroutine()
	pool, _ := r.pool()
	pool.Reconcile(ts)
	eventually(t, 30*time.Second, func() error {
		n := 0
		for _, p := range pool.allParts() {
			p.mu.Lock()
			if p.pipe.phase == running && p.thread != nil && p.began {
				n++
			}
			p.mu.Unlock()
		}
		if n < partitions {
			return fmt.Errorf("%d of %d partitions run", n, partitions)
		}
		return nil
	})
	if n := runtime.NumGoroutine() - before; n > 150 {
		t.Errorf("%d goroutines for %d partitions", n, partitions)
	}
	all := r.src.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch, kmsg.ListOffsets, kmsg.Metadata}, Observe: true})
	other := r.dst.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce, kmsg.ListOffsets, kmsg.Metadata, kmsg.DescribeProducers}, Observe: true})
	<-time.After(2 * time.Second)
	if n := all.Hits(); n > 100 { // three brokers, polls of 100 ms
		t.Errorf("%d requests to the source in 2 s", n)
	}
	if n := other.Hits(); n > 20 {
		t.Errorf("%d requests to the destination in 2 s", n)
	}
}
