package fetcher

import (
	"context"
	"strings"
	"sync"

	"mirrord/internal/kafka"
)

// policies remembers which topics are seeded under "delete" though they are compacted: fillers have no key, and a log
// that is only compacted cannot be trimmed (protocol R13).
type policies struct {
	mu     sync.Mutex // guards what follows; held over the change, so that two partitions of a topic do not cross
	before map[string]string
	using  map[string]map[int32]struct{} // partitions that are being seeded
}

const cleanupPolicy = "cleanup.policy"

// suspendCompaction makes a topic ready for seeding.
func (pool *Pool) suspendCompaction(ctx context.Context, tp kafka.TP) error {
	s := &pool.policies
	s.mu.Lock()
	defer s.mu.Unlock()
	configs := pool.deps.Destination.TopicConfigs(ctx, tp.Topic)[tp.Topic]
	if configs.Err != nil {
		return configs.Err
	}
	if policy := configs.Entries[cleanupPolicy].Value; strings.Contains(policy, "compact") {
		if err := pool.setPolicy(ctx, tp, "delete"); err != nil {
			return err
		}
		s.before[tp.Topic] = policy
	}
	if s.using[tp.Topic] == nil {
		s.using[tp.Topic] = map[int32]struct{}{}
	}
	s.using[tp.Topic][tp.Partition] = struct{}{}
	return nil
}

// restorePolicy gives a topic its policy back once its last partition here is seeded.
func (pool *Pool) restorePolicy(ctx context.Context, tp kafka.TP) error {
	s := &pool.policies
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.using[tp.Topic], tp.Partition)
	policy, ok := s.before[tp.Topic]
	if !ok || len(s.using[tp.Topic]) > 0 {
		return nil
	}
	if err := pool.setPolicy(ctx, tp, policy); err != nil {
		s.using[tp.Topic][tp.Partition] = struct{}{}
		return err
	}
	delete(s.before, tp.Topic)
	return nil
}

func (pool *Pool) setPolicy(ctx context.Context, tp kafka.TP, policy string) error {
	if err := pool.sameDestination(ctx, tp); err != nil {
		return err
	}
	return pool.deps.Destination.AlterTopicConfigs(ctx, []kafka.ConfigChange{{Topic: tp.Topic, Set: map[string]string{cleanupPolicy: policy}}})[tp.Topic]
}
