package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Producer is what a broker remembers of a producer id in one partition.
type Producer struct {
	ID               int64
	Epoch            int16
	LastSequence     int32 // −1: none of this epoch
	LastTimestamp    int64 // of its last record, ms
	CoordinatorEpoch int32 // of its last marker; −1: none
	TxnStart         int64 // first offset of its open transaction; −1: none is open
}

// ProducersResult lists the producers of a partition.
type ProducersResult struct {
	Producers []Producer
	Err       error
}

// Producers asks the leaders by DescribeProducers (Kafka 2.8), which needs READ on the topics.
func (c *Cluster) Producers(ctx context.Context, tps []TP) map[TP]ProducersResult {
	return askLeaders(ctx, c, tps, ledRequest[ProducersResult]{
		chunk:   producersChunk,
		fail:    func(err error) ProducersResult { return ProducersResult{Err: err} },
		failure: func(r ProducersResult) error { return r.Err },
		ask: func(ctx context.Context, broker int32, tps []located, out func(TP, ProducersResult)) {
			answers, err := c.look(ctx, laneKey{broker, laneLook}, describeProducers(tps))
			readProducers(tps, answers, err, out)
		},
	})
}

func describeProducers(tps []located) *kmsg.DescribeProducersRequest {
	req := kmsg.NewPtrDescribeProducersRequest()
	for topic, of := range byTopic(tps) {
		t := kmsg.NewDescribeProducersRequestTopic()
		t.Topic = topic
		for _, tp := range of {
			t.Partitions = append(t.Partitions, tp.Partition)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// readProducers hands over the partitions of the first answer, or err for all.
func readProducers(tps []located, answers []kmsg.Response, err error, out func(TP, ProducersResult)) {
	if err != nil {
		for _, tp := range tps {
			out(tp.TP, ProducersResult{Err: err})
		}
		return
	}
	index := indexLed(tps)
	for _, t := range answers[0].(*kmsg.DescribeProducersResponse).Topics {
		for _, p := range t.Partitions {
			tp, ok := index[TopicPartition{t.Topic, p.Partition}]
			if !ok {
				continue
			}
			r := ProducersResult{Err: partitionError("describe producers", tp, p.ErrorCode, p.ErrorMessage)}
			for _, a := range p.ActiveProducers {
				r.Producers = append(r.Producers, Producer{
					ID: a.ProducerID, Epoch: int16(a.ProducerEpoch),
					LastSequence: a.LastSequence, LastTimestamp: a.LastTimestamp, CoordinatorEpoch: a.CoordinatorEpoch,
					TxnStart: a.CurrentTxnStartOffset,
				})
			}
			out(tp, r)
		}
	}
}
