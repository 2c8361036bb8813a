package statestore

import (
	"context"
	"errors"
	"fmt"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// hanging is a transaction that is open in a shard though its coordinator is done with it: no marker will ever come, and
// the shard cannot be read beyond its start.
type hanging struct {
	kafka.Producer
	transactional kafka.Transactional
}

// committed reports whether the coordinator has provably decided to commit it. Each transaction of today's protocol takes
// the producer epoch one further (KIP-890), so that the coordinator's last one is known to be this one; otherwise it may be
// a later one, and what nobody could read yet is better lost, and decided again, than taken from an owner who had failed.
func (h hanging) committed() bool {
	return h.transactional.State == kafka.CompleteCommit && h.transactional.ProducerEpoch == h.Epoch+1
}

// findHanging picks the transactions that were open before and after their coordinators said that they had ended.
func findHanging(before []kafka.Producer, said map[int64]kafka.Transactional, after []kafka.Producer) (found []hanging) {
	was := map[kafka.Producer]bool{}
	for _, p := range before {
		was[of(p)] = true
	}
	for _, p := range after {
		if t, ok := said[p.ID]; ok && p.TxnStart >= 0 && was[of(p)] && t.Ended() {
			found = append(found, hanging{p, t})
		}
	}
	return found
}

// of names a transaction.
func of(p kafka.Producer) kafka.Producer {
	return kafka.Producer{ID: p.ID, Epoch: p.Epoch, TxnStart: p.TxnStart}
}

// endHanging ends the transactions that hang in a shard. Kafka 4 leaves such behind where a partition has no leader when
// a transaction over it ends (KAFKA-20734): a restart of the only broker that has a replica is enough.
func (s *Store) endHanging(ctx context.Context, shard int32) error {
	tp := kafka.TP{Topic: StateTopic, Partition: shard, LeaderEpoch: -1}
	before := s.deps.Cluster.Resume(ctx, []kafka.TP{tp})[tp]
	if before.Err != nil {
		return before.Err
	}
	said, err := s.ownersOf(ctx, before.Producers)
	if err != nil || len(said) == 0 {
		return err
	}
	after := s.deps.Cluster.Resume(ctx, []kafka.TP{tp})[tp]
	if after.Err != nil {
		return after.Err
	}
	var errs []error
	for _, h := range findHanging(before.Producers, said, after.Producers) {
		errs = append(errs, s.end(ctx, after.Broker, tp, h))
	}
	return errors.Join(errs...)
}

// ownersOf asks the coordinators about the open transactions, by producer id.
func (s *Store) ownersOf(ctx context.Context, producers []kafka.Producer) (map[int64]kafka.Transactional, error) {
	var open []int64
	for _, p := range producers {
		if p.TxnStart >= 0 {
			open = append(open, p.ID)
		}
	}
	if len(open) == 0 {
		return nil, nil
	}
	listed, err := s.deps.Cluster.TransactionalIDs(ctx, open)
	if err != nil {
		return nil, err
	}
	said := map[int64]kafka.Transactional{}
	for id, t := range listed {
		described, err := s.deps.Cluster.Transaction(ctx, t.ID)
		if err != nil {
			return nil, err
		}
		if described.ProducerID == id {
			said[id] = described
		}
	}
	return said, nil
}

func (s *Store) end(ctx context.Context, leader int32, tp kafka.TP, h hanging) error {
	what := fmt.Sprintf("transaction of %q, producer id %d, in %s hangs from offset %d on: its coordinator has ended it without a marker there",
		h.transactional.ID, h.ID, tp.Name(), h.TxnStart)
	outcomes, err := s.deps.Cluster.WriteMarkers(ctx, leader, []kafka.Marker{{
		ProducerID: h.ID, ProducerEpoch: h.Epoch, CoordinatorEpoch: max(0, h.CoordinatorEpoch), Commit: h.committed(), TPs: []kafka.TP{tp},
	}})
	if err == nil {
		err = outcomes[kafka.MarkerKey{ProducerID: h.ID, TopicPartition: tp.Name()}]
	}
	if err != nil {
		return mirror.Errorf(mirror.KindOf(err), "a %s: %w", what, err).WithHint(fmt.Sprintf(
			`end it by "kafka-transactions.sh --bootstrap-server … abort --topic %s --partition %d --start-offset %d"`, tp.Topic, tp.Partition, h.TxnStart))
	}
	s.deps.Log.Warn("hanging transaction ended", mirror.KeyShard, tp.Partition, mirror.KeyOffset, h.TxnStart, "committed", h.committed(), mirror.KeyCause, what)
	return nil
}
