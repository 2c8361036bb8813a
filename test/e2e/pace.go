package e2e

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Unhurried stretches a limit that holds on a machine with nothing else to do by the number of processes that wait for
// each of its cores.
func Unhurried(limit time.Duration) time.Duration {
	var load float64
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(b), &load)
	}
	return time.Duration(float64(limit) * max(1, load/float64(runtime.NumCPU())))
}

// Pace watches how long the partitions of a topic stand still under load.
type Pace struct {
	c          *Cluster
	topic      string
	partitions int32
	stop, done chan struct{}

	mu      sync.Mutex
	ends    map[int32]int64
	moved   map[int32]time.Time     // when the log end was last seen to move
	longest map[int32]time.Duration // since the mark
	late    time.Duration           // the longest time that the watch itself did not get to look
}

// WatchPace begins to watch.
func WatchPace(t testing.TB, c *Cluster, topic string, partitions int32) *Pace {
	p := &Pace{
		c: c, topic: topic, partitions: partitions, stop: make(chan struct{}), done: make(chan struct{}),
		ends: map[int32]int64{}, moved: map[int32]time.Time{}, longest: map[int32]time.Duration{},
	}
	go p.run()
	t.Cleanup(p.end)
	return p
}

func (p *Pace) end() {
	close(p.stop)
	<-p.done
}

func (p *Pace) run() {
	defer close(p.done)
	last := time.Now()
	for {
		select {
		case <-p.stop:
			return
		case <-time.After(15 * time.Millisecond):
		}
		ends, err := p.c.ends(p.topic, p.partitions)
		if err != nil {
			continue
		}
		now := time.Now()
		p.mu.Lock()
		p.late = max(p.late, now.Sub(last))
		last = now
		for i, end := range ends {
			if p.moved[i].IsZero() || end != p.ends[i] {
				p.longest[i] = max(p.longest[i], p.still(i, now))
				p.ends[i], p.moved[i] = end, now
			}
		}
		p.mu.Unlock()
	}
}

func (p *Pace) still(i int32, now time.Time) time.Duration {
	if p.moved[i].IsZero() {
		return 0
	}
	return now.Sub(p.moved[i])
}

// Mark forgets what was seen so far. A pause that lasts counts from here on.
func (p *Pace) Mark() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.longest)
	p.late = 0
	for i := range p.moved {
		p.moved[i] = time.Now()
	}
}

// Longest is how long each partition stood still at most since the mark, the pause that lasts now included, less what the
// watch itself was late.
func (p *Pace) Longest() map[int32]time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[int32]time.Duration{}
	for i := range p.partitions {
		out[i] = max(0, max(p.longest[i], p.still(i, time.Now()))-p.late)
	}
	return out
}

// ends asks for log ends in one request; all partitions have the same leader or those of others are left out.
func (c *Cluster) ends(topic string, partitions int32) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	of := kmsg.NewListOffsetsRequestTopic()
	of.Topic = topic
	for i := range partitions {
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp = i, -1
		of.Partitions = append(of.Partitions, part)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Topics = []kmsg.ListOffsetsRequestTopic{of}
	resp, err := req.RequestWith(ctx, c.cl)
	if err != nil {
		return nil, err
	}
	ends := map[int32]int64{}
	for _, t := range resp.Topics {
		for _, part := range t.Partitions {
			if part.ErrorCode == 0 {
				ends[part.Partition] = part.Offset
			}
		}
	}
	return ends, nil
}

// longestOf is the longest of the pauses of some partitions.
func longestOf(pauses map[int32]time.Duration, of func(int32) bool) (longest time.Duration) {
	for i, d := range pauses {
		if of(i) {
			longest = max(longest, d)
		}
	}
	return longest
}
