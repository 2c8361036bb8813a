package kafka

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ShareOffsets are the start offsets of a share group: where it will begin to hand out records. −1: none yet.
type ShareOffsets struct {
	Starts map[TopicPartition]int64
	Failed map[TopicPartition]error
	Err    error
}

// FetchShareOffsets reads the start offsets of share groups in all topics, one request per coordinator and chunk. A group
// that does not exist has none. Needs Kafka 4.1 (UnsupportedVersion before).
func (c *Cluster) FetchShareOffsets(ctx context.Context, groups ...string) map[string]ShareOffsets {
	all := make(map[string]ShareOffsets, len(groups))
	for chunk := range slices.Chunk(groups, groupsPerFetch) {
		req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
		for _, id := range chunk {
			g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
			g.GroupID = id
			req.Groups = append(req.Groups, g)
			all[id] = ShareOffsets{Err: missing("fetch offsets of share group " + id)}
		}
		shards(ctx, c, "fetch offsets of share groups", req,
			func(req *kmsg.DescribeShareGroupOffsetsRequest, resp *kmsg.DescribeShareGroupOffsetsResponse, err error) {
				if err != nil {
					for _, g := range req.Groups {
						all[g.GroupID] = ShareOffsets{Err: err}
					}
					return
				}
				for _, g := range resp.Groups {
					all[g.GroupID] = readShareOffsets(g)
				}
			})
	}
	return all
}

func readShareOffsets(g kmsg.DescribeShareGroupOffsetsResponseGroup) ShareOffsets {
	if err := answerError("fetch offsets of share group "+g.GroupID, g.ErrorCode, g.ErrorMessage); err != nil && !groupNotFound(err) {
		return ShareOffsets{Err: err}
	}
	o := ShareOffsets{Starts: map[TopicPartition]int64{}, Failed: map[TopicPartition]error{}}
	for _, t := range g.Topics {
		for _, p := range t.Partitions {
			tp := TopicPartition{t.Topic, p.Partition}
			if err := answerError("fetch offset of "+tp.String(), p.ErrorCode, p.ErrorMessage); err != nil {
				o.Failed[tp] = err
			} else {
				o.Starts[tp] = p.StartOffset
			}
		}
	}
	return o
}

// AlterShareOffsets sets start offsets of a share group, which is created if it does not exist and must have no members.
// Partitions that are not in the result are set.
func (c *Cluster) AlterShareOffsets(ctx context.Context, group string, starts map[TopicPartition]int64) map[TopicPartition]error {
	op := "set offsets of share group " + group
	tps := slices.Collect(maps.Keys(starts))
	req := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	req.GroupID = group
	for topic, of := range byTopic(tps) {
		t := kmsg.NewAlterShareGroupOffsetsRequestTopic()
		t.Topic = topic
		for _, tp := range of {
			p := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
			p.Partition, p.StartOffset = tp.Partition, starts[tp]
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := effect[*kmsg.AlterShareGroupOffsetsResponse](ctx, c, op, req)
	if err == nil {
		err = answerError(op, resp.ErrorCode, resp.ErrorMessage)
	}
	return failedPartitions(op, tps, err, func(note noteOf) {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				note(t.Topic, p.Partition, p.ErrorCode, p.ErrorMessage)
			}
		}
	})
}

// DeleteShareOffsets forgets a share group's state in whole topics. Topics that are not in the result are forgotten.
func (c *Cluster) DeleteShareOffsets(ctx context.Context, group string, topics ...string) map[string]error {
	op := "delete offsets of share group " + group
	failed := map[string]error{}
	req := kmsg.NewPtrDeleteShareGroupOffsetsRequest()
	req.GroupID = group
	for _, name := range topics {
		failed[name] = missing(op)
		t := kmsg.NewDeleteShareGroupOffsetsRequestTopic()
		t.Topic = name
		req.Topics = append(req.Topics, t)
	}
	resp, err := effect[*kmsg.DeleteShareGroupOffsetsResponse](ctx, c, op, req)
	if err == nil {
		err = answerError(op, resp.ErrorCode, resp.ErrorMessage)
	}
	if err != nil {
		setAll(failed, topics, err)
		return failed
	}
	for _, t := range resp.Topics {
		failed[t.Topic] = answerError(op, t.ErrorCode, t.ErrorMessage)
	}
	dropNil(failed)
	return failed
}
