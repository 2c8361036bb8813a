package kafka

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

// groupsPerFetch bounds one OffsetFetch answer: a group's offsets in all topics are in it.
const groupsPerFetch = 500

// commitsAtOnce is how many groups are committed side by side: the protocol has one group in a request, and a coordinator
// handles the requests of one connection one after another.
const commitsAtOnce = 16

// CommittedOffset is what a group has committed for a partition.
type CommittedOffset struct {
	Offset      int64
	LeaderEpoch int32 // −1: none. What mirrord commits always has none: the two sides' epochs differ
	Metadata    string
}

// GroupOffsets are all offsets that a group has committed.
type GroupOffsets struct {
	Offsets map[TopicPartition]CommittedOffset
	Failed  map[TopicPartition]error // partitions of which the coordinator does not tell
	Err     error                    // of the group as a whole
}

// FetchOffsets reads all committed offsets of groups, one request per coordinator and chunk from Kafka 3.0 on, one per
// group before. A group that does not exist has none.
func (c *Cluster) FetchOffsets(ctx context.Context, groups ...string) map[string]GroupOffsets {
	all := make(map[string]GroupOffsets, len(groups))
	for chunk := range slices.Chunk(groups, groupsPerFetch) {
		req := kmsg.NewPtrOffsetFetchRequest()
		for _, id := range chunk {
			g := kmsg.NewOffsetFetchRequestGroup()
			g.Group = id
			req.Groups = append(req.Groups, g)
			all[id] = GroupOffsets{Err: missing("fetch offsets of group " + id)}
		}
		shards(ctx, c, "fetch offsets", req, func(req *kmsg.OffsetFetchRequest, resp *kmsg.OffsetFetchResponse, err error) {
			if err != nil {
				for _, id := range fetchedGroups(req) {
					all[id] = GroupOffsets{Err: err}
				}
				return
			}
			for _, g := range resp.Groups {
				all[g.Group] = readGroupOffsets(g)
			}
		})
	}
	return all
}

func fetchedGroups(req *kmsg.OffsetFetchRequest) []string {
	if len(req.Groups) == 0 {
		return []string{req.Group}
	}
	ids := make([]string, 0, len(req.Groups))
	for _, g := range req.Groups {
		ids = append(ids, g.Group)
	}
	return ids
}

func readGroupOffsets(g kmsg.OffsetFetchResponseGroup) GroupOffsets {
	if err := answerError("fetch offsets of group "+g.Group, g.ErrorCode, nil); err != nil && !groupNotFound(err) {
		return GroupOffsets{Err: err}
	}
	o := GroupOffsets{Offsets: map[TopicPartition]CommittedOffset{}, Failed: map[TopicPartition]error{}}
	for _, t := range g.Topics {
		for _, p := range t.Partitions {
			tp := TopicPartition{t.Topic, p.Partition}
			if err := answerError("fetch offset of "+tp.String(), p.ErrorCode, nil); err != nil {
				o.Failed[tp] = err
			} else if p.Offset >= 0 {
				o.Offsets[tp] = CommittedOffset{p.Offset, p.LeaderEpoch, deref(p.Metadata)}
			}
		}
	}
	return o
}

// CommitOffsets commits offsets of a group without being a member: it is refused while the group has members, and creates
// a classic group that does not exist. Leader epochs are committed as given. Partitions that are not in the result are
// committed.
func (c *Cluster) CommitOffsets(ctx context.Context, group string, offsets map[TopicPartition]CommittedOffset) map[TopicPartition]error {
	op := "commit offsets of group " + group
	tps := slices.Collect(maps.Keys(offsets))
	resp, err := effect[*kmsg.OffsetCommitResponse](ctx, c, op, commitRequest(group, tps, offsets))
	return failedPartitions(op, tps, err, func(note noteOf) {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				note(t.Topic, p.Partition, p.ErrorCode, nil)
			}
		}
	})
}

// noteOf takes in what an answer says of one partition.
type noteOf func(topic string, partition int32, code int16, message *string)

// failedPartitions tells what failed of an effect on partitions: err for all of them, or what read notes. A partition of
// which nothing is noted has failed, too.
func failedPartitions(op string, tps []TopicPartition, err error, read func(noteOf)) map[TopicPartition]error {
	failed := make(map[TopicPartition]error, len(tps))
	if err != nil {
		setAll(failed, tps, err)
		return failed
	}
	setAll(failed, tps, missing(op))
	read(func(topic string, partition int32, code int16, message *string) {
		failed[TopicPartition{topic, partition}] = answerError(op, code, message)
	})
	dropNil(failed)
	return failed
}

func commitRequest(group string, tps []TopicPartition, offsets map[TopicPartition]CommittedOffset) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.RetentionTimeMillis = group, -1, -1
	for topic, of := range byTopic(tps) {
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic = topic
		for _, tp := range of {
			p, o := kmsg.NewOffsetCommitRequestTopicPartition(), offsets[tp]
			p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = tp.Partition, o.Offset, o.LeaderEpoch, kmsg.StringPtr(o.Metadata)
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// CommitMany is CommitOffsets for many groups, some side by side. Groups that are not in the result are committed.
func (c *Cluster) CommitMany(ctx context.Context, groups map[string]map[TopicPartition]CommittedOffset) map[string]map[TopicPartition]error {
	var (
		mu     sync.Mutex
		failed = map[string]map[TopicPartition]error{}
		eg     errgroup.Group
	)
	eg.SetLimit(commitsAtOnce)
	for group, offsets := range groups {
		eg.Go(func() error {
			if f := c.CommitOffsets(ctx, group, offsets); len(f) > 0 {
				mu.Lock()
				defer mu.Unlock()
				failed[group] = f
			}
			return nil
		})
	}
	_ = eg.Wait() // errors are in failed
	return failed
}

// DeleteOffsets deletes committed offsets of a group; it is refused for topics that the group's members subscribe to. Partitions
// that are not in the result have none. Needs Kafka 2.4.
func (c *Cluster) DeleteOffsets(ctx context.Context, group string, partitions []TopicPartition) map[TopicPartition]error {
	op := "delete offsets of group " + group
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group
	for topic, of := range byTopic(partitions) {
		t := kmsg.NewOffsetDeleteRequestTopic()
		t.Topic = topic
		for _, tp := range of {
			p := kmsg.NewOffsetDeleteRequestTopicPartition()
			p.Partition = tp.Partition
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := effect[*kmsg.OffsetDeleteResponse](ctx, c, op, req)
	if err == nil {
		err = answerError(op, resp.ErrorCode, nil)
	}
	return failedPartitions(op, partitions, err, func(note noteOf) {
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				note(t.Topic, p.Partition, p.ErrorCode, nil)
			}
		}
	})
}
