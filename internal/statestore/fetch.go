package statestore

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

const (
	fetchMaxBytes          = 32 << 20
	fetchPartitionMaxBytes = 1 << 20
	damagedTries           = 3 // fetches of the same damaged batch before its shard stops
)

// cursor is the place up to which one partition of an internal topic was read. Exactly one goroutine owns it.
type cursor struct {
	topic     string
	topicID   mirror.TopicID
	partition int32
	leader    int32
	next      int64 // −1: the log start, not known yet
	goal      int64 // the end that the log had when reading began; −1: not known yet
	damaged   int
}

// fetched is what one answer said about a cursor's partition.
type fetched struct {
	records             []*kgo.Record
	next                int64
	highWatermark, last int64 // last: the last stable offset
}

// fetch asks one broker once for everything that follows the cursors, read committed, and hands out the answers.
func fetch(ctx context.Context, client *kgo.Client, cursors []*cursor, wait time.Duration, each func(*cursor, fetched) error) error {
	if err := seekStarts(ctx, client, cursors); err != nil {
		return err
	}
	answer, err := client.Broker(int(cursors[0].leader)).Request(ctx, fetchRequest(cursors, wait))
	if err != nil {
		return fmt.Errorf("fetch internal topics: %w", classified(err))
	}
	resp := answer.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("fetch internal topics: %w", classified(err))
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			c := find(cursors, resp, i, p.Partition)
			if c == nil {
				continue
			}
			got, err := c.read(p)
			if err != nil {
				return err
			}
			if err := each(c, got); err != nil {
				return err
			}
		}
	}
	return nil
}

func fetchRequest(cursors []*cursor, wait time.Duration) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait.Milliseconds()), 1, fetchMaxBytes
	req.IsolationLevel = 1
	req.SessionEpoch = -1
	at := map[string]int{}
	for _, c := range cursors {
		i, ok := at[c.topic]
		if !ok {
			i = len(req.Topics)
			at[c.topic] = i
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = c.topic, c.topicID
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = c.partition, c.next, fetchPartitionMaxBytes
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	return req
}

func find(cursors []*cursor, resp *kmsg.FetchResponse, topic int, partition int32) *cursor {
	t := &resp.Topics[topic]
	for _, c := range cursors {
		same := c.topic == t.Topic
		if resp.Version >= 13 { // topics have ids only
			same = c.topicID == t.TopicID
		}
		if same && c.partition == partition {
			return c
		}
	}
	return nil
}

// read decodes one partition's answer. Decided data only; markers and aborted records move the position, nothing else.
func (c *cursor) read(p *kmsg.FetchResponseTopicPartition) (fetched, error) {
	if p.ErrorCode == kerr.OffsetOutOfRange.Code { // cut at the front, or lost at the end
		c.next = -1
		return fetched{next: -1, highWatermark: -1, last: -1}, nil
	}
	opts := kgo.ProcessFetchPartitionOpts{Offset: c.next, IsolationLevel: kgo.ReadCommitted(), Topic: c.topic, Partition: c.partition}
	part, next := kgo.ProcessFetchPartition(opts, p, kgo.DefaultDecompressor(), nil)
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return fetched{}, fmt.Errorf("fetch %s-%d: %w", c.topic, c.partition, classified(err))
	}
	got := fetched{records: part.Records, next: next, highWatermark: p.HighWatermark, last: p.LastStableOffset}
	c.next = next
	if part.Err == nil {
		c.damaged = 0
		return got, nil
	}
	if c.damaged++; c.damaged < damagedTries {
		return got, nil
	}
	return got, &damagedError{c.topic, c.partition, next, part.Err}
}

// damagedError is a batch that stays damaged though it was fetched again.
type damagedError struct {
	topic     string
	partition int32
	offset    int64
	err       error
}

func (e *damagedError) Error() string {
	return fmt.Sprintf("read %s-%d at offset %d: %v", e.topic, e.partition, e.offset, e.err)
}

func (e *damagedError) Unwrap() error { return e.err }

// seekStarts finds the log start for the cursors that do not know it.
func seekStarts(ctx context.Context, client *kgo.Client, cursors []*cursor) error {
	for _, c := range cursors {
		if c.next >= 0 {
			continue
		}
		start, err := listOffset(ctx, client, c.topic, c.partition, -2)
		if err != nil {
			return err
		}
		c.next = start
	}
	return nil
}

// listOffset asks the leader of one partition: −1 for the high watermark, −2 for the log start.
func listOffset(ctx context.Context, client *kgo.Client, topic string, partition int32, timestamp int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.TimeoutMillis = -1, 1000 // the default of 30 s would keep a silent connection for so long
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, timestamp, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err == nil && (len(resp.Topics) == 0 || len(resp.Topics[0].Partitions) == 0) {
		err = kafka.ErrMissing
	}
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return 0, fmt.Errorf("list offsets of %s-%d: %w", topic, partition, classified(err))
	}
	return resp.Topics[0].Partitions[0].Offset, nil
}

// classified gives an error of franz-go the kind by which it is handled.
func classified(err error) error {
	if err == nil {
		return nil
	}
	return &mirror.Error{Kind: kafka.Classify(err), Err: err}
}
