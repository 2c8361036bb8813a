package fetcher

import (
	"context"
	"slices"
	"sync"
	"time"

	"mirrord/internal/kafka"
)

// topology is what a cluster last said about the leaders of some topics.
type topology struct {
	mu     sync.Mutex
	topics map[string]kafka.Topic
	asked  map[string]time.Time
}

func newTopology() *topology {
	return &topology{topics: map[string]kafka.Topic{}, asked: map[string]time.Time{}}
}

// refresh asks the cluster about topics whose answer was asked for before since.
func (t *topology) refresh(ctx context.Context, c *kafka.Cluster, topics []string, since time.Time) error {
	t.mu.Lock()
	stale := slices.DeleteFunc(slices.Clone(topics), func(name string) bool { return t.asked[name].After(since) })
	t.mu.Unlock()
	if len(stale) == 0 {
		return nil
	}
	now := time.Now()
	m, err := c.Metadata(ctx, stale...)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range stale {
		t.topics[name], t.asked[name] = m.Topics[name], now
	}
	return nil
}

// find gives a partition as last seen. ok is false if it has no leader.
func (t *topology) find(topic string, index int32) (kafka.Topic, kafka.Partition, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tp := t.topics[topic]
	p, ok := tp.Partition(index)
	return tp, p, ok && p.Leader >= 0
}
