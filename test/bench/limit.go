package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

const (
	limitBytes = 300 << 20 // of batches kept in memory
	limitDepth = 5         // requests in flight, as a broker accepts of one producer
)

// limit is how fast the destination takes the source's own batches when they come from memory, in MB/s of record values:
// nothing that copies them as they are can be faster.
func (b *bench) limit(w workload) (mbPerS float64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	logs, records, err := b.remember(ctx, w.name)
	if err != nil {
		return 0, err
	}
	if err := b.clean(); err != nil {
		return 0, err
	}
	created, err := b.d.Admin().CreateTopic(ctx, int32(len(logs)), 1, nil, w.name)
	if err != nil {
		return 0, err
	}
	took, err := b.pour(ctx, created, logs)
	return float64(records) * float64(w.size) / 1e6 / took.Seconds(), err
}

func open(bootstrap string) (*kafka.Cluster, error) {
	return kafka.Open(kafka.Config{Connection: mirror.Connection{BootstrapServers: []string{bootstrap}}, ClientID: "bench"})
}

// remember reads the first batches of each partition.
func (b *bench) remember(ctx context.Context, topic string) (logs [][]recordbatch.Batch, records int64, err error) {
	c, err := open(b.s.Bootstrap())
	if err != nil {
		return nil, 0, err
	}
	defer c.Close()
	ends, err := b.s.Admin().ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, 0, err
	}
	logs = make([][]recordbatch.Batch, len(ends[topic]))
	for p, end := range ends[topic] {
		tp := kafka.TP{Topic: topic, Partition: p, LeaderEpoch: -1}
		var kept int
		for next := int64(0); next < end.Offset && kept < limitBytes/len(logs); {
			f, err := c.Read(ctx, tp, next, kafka.ReadOptions{MaxBytes: 8 << 20})
			if err != nil {
				return nil, 0, err
			}
			for rest := f.Bytes; len(rest) > 0; {
				var batch recordbatch.Batch
				if batch, rest, err = recordbatch.Cut(rest); errors.Is(err, recordbatch.ErrPartial) {
					break
				} else if err != nil {
					return nil, 0, err
				}
				logs[p] = append(logs[p], batch)
				next, kept, records = batch.NextOffset(), kept+len(batch), records+int64(batch.Count())
			}
		}
	}
	return logs, records, nil
}

// pour appends logs with one request in which each partition has one batch, several requests in flight.
func (b *bench) pour(ctx context.Context, topic kadm.CreateTopicResponse, logs [][]recordbatch.Batch) (took time.Duration, err error) {
	c, err := open(b.d.Bootstrap())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	init := kmsg.NewPtrInitProducerIDRequest()
	producer, err := init.RequestWith(ctx, b.d.Client())
	if err != nil {
		return 0, err
	}
	if err := led(ctx, c, topic.Topic, len(logs)); err != nil {
		return 0, err
	}
	conn, err := c.Dial(ctx, 1)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	sequences := make([]int32, len(logs))
	began := time.Now()
	calls, failed := make(chan *kafka.Call, limitDepth-1), make(chan error, 1)
	go func() { failed <- await(calls) }()
	for round := 0; ; round++ {
		req := &kafka.ProduceRequest{Timeout: 10 * time.Second, Topics: []kafka.ProduceTopic{{Name: topic.Topic, ID: mirror.TopicID(topic.ID)}}}
		for p, log := range logs {
			if round < len(log) {
				log[round].Patch(recordbatch.Identity{ProducerID: producer.ProducerID, ProducerEpoch: producer.ProducerEpoch, Sequence: sequences[p]}, false)
				sequences[p] += log[round].Count()
				req.Topics[0].Partitions = append(req.Topics[0].Partitions, kafka.ProducePartition{Index: int32(p), Batch: log[round]})
			}
		}
		if len(req.Topics[0].Partitions) == 0 {
			close(calls)
			err := <-failed
			return time.Since(began), err
		}
		calls <- conn.SendProduce(req)
	}
}

// led waits until all partitions of a new topic answer.
func led(ctx context.Context, c *kafka.Cluster, topic string, partitions int) error {
	tps := make([]kafka.TP, partitions)
	for p := range tps {
		tps[p] = kafka.TP{Topic: topic, Partition: int32(p), LeaderEpoch: -1}
	}
	for ; ; time.Sleep(pollInterval) {
		var err error
		for _, end := range c.LogEnds(ctx, tps) {
			err = errors.Join(err, end.Err)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func await(calls <-chan *kafka.Call) (first error) {
	for call := range calls {
		results, err := call.Produced()
		for _, r := range results {
			err = errors.Join(err, r.Err)
		}
		if err != nil && first == nil {
			first = fmt.Errorf("produce from memory: %w", err)
		}
	}
	return first
}
