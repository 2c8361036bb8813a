package statestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// transactor is a transactional client. After an error it must be closed: the next one's InitProducerID ends what it
// left open.
type transactor struct {
	client *kgo.Client
	id     string
	group  string
}

func openTransactor(cluster *kafka.Cluster, id, group string) (*transactor, error) {
	client, err := kgo.NewClient(append(cluster.Opts(),
		kgo.TransactionalID(id), kgo.TransactionTimeout(transactionTimeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.ProducerBatchCompression(kgo.ZstdCompression(), kgo.SnappyCompression()),
		kgo.RetryBackoffFn(func(tries int) time.Duration { return min(10*time.Millisecond<<min(tries, 6), time.Second) }),
	)...)
	if err != nil {
		return nil, fmt.Errorf("open state writer: %w", err)
	}
	return &transactor{client, id, group}, nil
}

func (t *transactor) close() { t.client.Close() }

var errTopicReplaced = errors.New("the state topic was replaced meanwhile")

// commit writes records in one transaction that holds only if the group knows the member at its generation and the
// topic is the one with that id. It returns the next offset of each partition written.
func (t *transactor) commit(ctx context.Context, records []*kgo.Record, m member, topicID mirror.TopicID) (map[int32]int64, error) {
	if err := t.client.BeginTransaction(); err != nil {
		return nil, classified(err)
	}
	ends, err := t.produce(ctx, records)
	if err != nil {
		return nil, err
	}
	if err := t.commitOffsets(ctx, ends, m, topicID); err != nil {
		return nil, err
	}
	topics, err := askMetadata(ctx, t.client, []string{StateTopic})
	if err != nil {
		return nil, err
	}
	if topics[StateTopic].TopicID != topicID {
		return nil, errTopicReplaced
	}
	if err := t.client.EndTransaction(ctx, kgo.TryCommit); err != nil {
		return nil, classified(err)
	}
	return ends, nil
}

func (t *transactor) produce(ctx context.Context, records []*kgo.Record) (map[int32]int64, error) {
	var mu sync.Mutex
	var first error
	ends := map[int32]int64{}
	for _, r := range records {
		t.client.Produce(ctx, r, func(r *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil && first == nil {
				first = err
			}
			ends[r.Partition] = max(ends[r.Partition], r.Offset+1)
		})
	}
	if err := t.client.Flush(ctx); err != nil {
		return nil, classified(err)
	}
	mu.Lock()
	defer mu.Unlock()
	return ends, classified(first)
}

// commitOffsets is what fences (protocol R15): the group coordinator refuses a member or generation of the past, and
// then the transaction is not committed.
func (t *transactor) commitOffsets(ctx context.Context, ends map[int32]int64, m member, topicID mirror.TopicID) error {
	producerID, producerEpoch, err := t.client.ProducerID(ctx)
	if err != nil {
		return classified(err)
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = t.id, producerID, producerEpoch, t.group
	err = retryCode(ctx, func() (int16, error) {
		resp, err := add.RequestWith(ctx, t.client)
		if err != nil {
			return 0, err
		}
		return resp.ErrorCode, nil
	})
	if err != nil {
		return fmt.Errorf("add offsets to transaction: %w", err)
	}
	req := t.offsetCommit(ends, m, topicID)
	req.ProducerID, req.ProducerEpoch = producerID, producerEpoch
	err = retryCode(ctx, func() (int16, error) {
		resp, err := req.RequestWith(ctx, t.client)
		if err != nil {
			return 0, err
		}
		return firstCode(resp), nil
	})
	if err != nil {
		return fmt.Errorf("commit offsets in transaction: %w", err)
	}
	return nil
}

func (t *transactor) offsetCommit(ends map[int32]int64, m member, topicID mirror.TopicID) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.MemberID, req.Generation, req.InstanceID = t.id, t.group, m.id, m.generation, m.instanceID
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic, topic.TopicID = StateTopic, topicID // by id where the broker can
	for partition, next := range ends {
		p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = partition, next
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	return req
}

func firstCode(resp *kmsg.TxnOffsetCommitResponse) int16 {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				return p.ErrorCode
			}
		}
	}
	return 0
}

const codeRetryPause = 10 * time.Millisecond

// retryCode repeats a request while a coordinator is busy with the last transaction, or moves.
func retryCode(ctx context.Context, ask func() (int16, error)) error {
	for {
		code, err := ask()
		if err == nil {
			err = kerr.ErrorForCode(code)
		}
		busy := errors.Is(err, kerr.ConcurrentTransactions) || errors.Is(err, kerr.CoordinatorLoadInProgress) ||
			errors.Is(err, kerr.NotCoordinator) || errors.Is(err, kerr.CoordinatorNotAvailable)
		if !busy || !pause(ctx, codeRetryPause) {
			return classified(err)
		}
	}
}
