package kafka

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// placementsPerRequest bounds one request that changes placements: a controller refuses an operation of more than 10,000
// metadata records, of which each partition is one.
const placementsPerRequest = 2000

// Reassignment is a change of a partition's replicas that has not ended.
type Reassignment struct {
	Replicas         []int32 // current ones with those being added, in the wanted order, then those being removed
	Adding, Removing []int32
}

// ListReassignments lists all reassignments in progress, everybody's, in one request. Needs Kafka 2.4.
func (c *Cluster) ListReassignments(ctx context.Context) (map[TopicPartition]Reassignment, error) {
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	req.TimeoutMillis = c.brokerMillis()
	resp, err := ask[*kmsg.ListPartitionReassignmentsResponse](ctx, c, "list reassignments", req)
	if err != nil {
		return nil, err
	}
	if err := answerError("list reassignments", resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	all := map[TopicPartition]Reassignment{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			all[TopicPartition{t.Topic, p.Partition}] = Reassignment{p.Replicas, p.AddingReplicas, p.RemovingReplicas}
		}
	}
	return all, nil
}

// Reassign sets the replicas of partitions, in this order, first the preferred leader. A reassignment in progress is
// replaced, whoever began it: look before. Partitions that are not in the result are accepted; a changed set of replicas
// takes its time.
func (c *Cluster) Reassign(ctx context.Context, to map[TopicPartition][]int32) map[TopicPartition]error {
	return c.alterPlacement(ctx, "reassign", to)
}

// CancelReassignments ends reassignments in progress, everybody's: look before. For one that has ended already the error is
// one that NoReassignment recognises.
func (c *Cluster) CancelReassignments(ctx context.Context, of []TopicPartition) map[TopicPartition]error {
	to := make(map[TopicPartition][]int32, len(of))
	for _, tp := range of {
		to[tp] = nil
	}
	return c.alterPlacement(ctx, "cancel reassignment of", to)
}

// NoReassignment reports that there was no reassignment in progress that could be cancelled.
func NoReassignment(err error) bool { return is(err, kerr.NoReassignmentInProgress) }

func (c *Cluster) alterPlacement(ctx context.Context, op string, to map[TopicPartition][]int32) map[TopicPartition]error {
	failed := map[TopicPartition]error{}
	for chunk := range slices.Chunk(slices.Collect(maps.Keys(to)), placementsPerRequest) {
		for _, tp := range chunk {
			failed[tp] = missing(op + " " + tp.String())
		}
		resp, err := effect[*kmsg.AlterPartitionAssignmentsResponse](ctx, c, op+" partitions", c.placementRequest(chunk, to))
		if err == nil {
			err = answerError(op+" partitions", resp.ErrorCode, resp.ErrorMessage)
		}
		if err != nil {
			setAll(failed, chunk, err)
			continue
		}
		readPlacements(op, resp, failed)
	}
	dropNil(failed)
	return failed
}

func (c *Cluster) placementRequest(chunk []TopicPartition, to map[TopicPartition][]int32) *kmsg.AlterPartitionAssignmentsRequest {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = c.brokerMillis()
	for topic, of := range byTopic(chunk) {
		t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		t.Topic = topic
		for _, tp := range of {
			p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
			p.Partition, p.Replicas = tp.Partition, to[tp]
			t.Partitions = append(t.Partitions, p)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

func readPlacements(op string, resp *kmsg.AlterPartitionAssignmentsResponse, into map[TopicPartition]error) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			tp := TopicPartition{t.Topic, p.Partition}
			into[tp] = answerError(op+" "+tp.String(), p.ErrorCode, p.ErrorMessage)
		}
	}
}

// ElectPreferred makes the first replica of partitions their leader. One that leads already is done. Partitions that are not in
// the result are led by their first replica.
func (c *Cluster) ElectPreferred(ctx context.Context, of []TopicPartition) map[TopicPartition]error {
	failed := map[TopicPartition]error{}
	for chunk := range slices.Chunk(of, placementsPerRequest) {
		req := c.electRequest(chunk)
		resp, err := effect[*kmsg.ElectLeadersResponse](ctx, c, "elect preferred leaders", req)
		if err == nil {
			err = answerError("elect preferred leaders", resp.ErrorCode, nil)
		}
		if err != nil {
			setAll(failed, chunk, err)
			continue
		}
		readElections(resp, failed)
	}
	dropNil(failed)
	return failed
}

func (c *Cluster) electRequest(of []TopicPartition) *kmsg.ElectLeadersRequest {
	req := kmsg.NewPtrElectLeadersRequest()
	req.TimeoutMillis, req.ElectionType = c.brokerMillis(), 0
	for topic, tps := range byTopic(of) {
		t := kmsg.NewElectLeadersRequestTopic()
		t.Topic = topic
		for _, tp := range tps {
			t.Partitions = append(t.Partitions, tp.Partition)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// readElections leaves out partitions of which the answer says nothing: a broker may leave out those that need no election.
func readElections(resp *kmsg.ElectLeadersResponse, into map[TopicPartition]error) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != kerr.ElectionNotNeeded.Code {
				tp := TopicPartition{t.Topic, p.Partition}
				into[tp] = answerError("elect preferred leader of "+tp.String(), p.ErrorCode, p.ErrorMessage)
			}
		}
	}
}
