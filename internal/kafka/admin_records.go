package kafka

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeletedRecords is the outcome for one partition.
type DeletedRecords struct {
	LogStart int64 // where the log begins now
	Err      error // OutOfRange: beyond the high watermark. PolicyViolation: the topic is only compacted
}

// DeleteRecords moves log starts up to the given offsets, one request per leader and chunk. An offset below a log's start
// changes nothing. Topics are named, not meant by id: check the id right before (protocol R17).
func (c *Cluster) DeleteRecords(ctx context.Context, to map[TP]int64) map[TP]DeletedRecords {
	deleted := make(map[TP]DeletedRecords, len(to))
	for chunk := range slices.Chunk(slices.Collect(maps.Keys(to)), namesPerRequest) {
		tps := make(map[TopicPartition]TP, len(chunk))
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.TimeoutMillis = c.brokerMillis()
		for topic, of := range byTopic(chunk) {
			t := kmsg.NewDeleteRecordsRequestTopic()
			t.Topic = topic
			for _, tp := range of {
				p := kmsg.NewDeleteRecordsRequestTopicPartition()
				p.Partition, p.Offset = tp.Partition, to[tp]
				t.Partitions = append(t.Partitions, p)
				tps[tp.Name()] = tp
				deleted[tp] = DeletedRecords{-1, missing("delete records of " + tp.String())}
			}
			req.Topics = append(req.Topics, t)
		}
		c.deleteRecords(ctx, req, func(name TopicPartition, d DeletedRecords) {
			if tp, ok := tps[name]; ok {
				deleted[tp] = d
			}
		})
	}
	return deleted
}

func (c *Cluster) deleteRecords(ctx context.Context, req *kmsg.DeleteRecordsRequest, each func(TopicPartition, DeletedRecords)) {
	effectShards(ctx, c, "delete records", req, func(req *kmsg.DeleteRecordsRequest, resp *kmsg.DeleteRecordsResponse, err error) {
		if err != nil {
			for _, t := range req.Topics {
				for _, p := range t.Partitions {
					each(TopicPartition{t.Topic, p.Partition}, DeletedRecords{-1, err})
				}
			}
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				name := TopicPartition{t.Topic, p.Partition}
				each(name, DeletedRecords{p.LowWatermark, answerError("delete records of "+name.String(), p.ErrorCode, nil)})
			}
		}
	})
}

// byTopic sorts partitions into their topics.
func byTopic[T interface{ topic() string }](tps []T) map[string][]T {
	topics := map[string][]T{}
	for _, tp := range tps {
		topics[tp.topic()] = append(topics[tp.topic()], tp)
	}
	return topics
}
