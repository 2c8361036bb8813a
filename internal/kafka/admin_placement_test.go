package kafka

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

func TestPlacementErrorsStayWithTheirPartitions(t *testing.T) {
	_, c, _ := fakeWithTopic(t, 1)
	ctx := testContext(t)
	here, gone := TopicPartition{"t", 0}, TopicPartition{"none", 0}
	if failed := c.Reassign(ctx, map[TopicPartition][]int32{here: {0}, gone: {0}}); failed[here] != nil || !UnknownTopic(failed[gone]) {
		t.Errorf("reassign: %v", failed)
	}
	if failed := c.CancelReassignments(ctx, []TopicPartition{here, gone}); !NoReassignment(failed[here]) || !UnknownTopic(failed[gone]) {
		t.Errorf("cancel: %v", failed)
	}
	if failed := c.ElectPreferred(ctx, []TopicPartition{here, gone}); failed[here] != nil || !UnknownTopic(failed[gone]) {
		t.Errorf("elect: %v", failed)
	}
	if all, err := c.ListReassignments(ctx); err != nil || len(all) != 0 {
		t.Errorf("list: %v, %v", all, err)
	}
}

func TestTurnsAreServedInOrder(t *testing.T) {
	fake, c, _ := fakeWithTopic(t, 1, kfake.NumBrokers(3))
	var keys []int16
	fake.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		if k := req.Key(); k == kmsg.ElectLeaders.Int16() || k == kmsg.AlterPartitionAssignments.Int16() {
			keys = append(keys, k)
		}
		return nil, nil, false
	})
	here, gone := TopicPartition{"t", 0}, TopicPartition{"none", 0}
	failed, err := c.PlaceInTurn(testContext(t), []Turn{
		{Reassign: map[TopicPartition][]int32{here: {1, 0}, gone: {0}}},
		{Elect: []TopicPartition{here, gone}},
		{Reassign: map[TopicPartition][]int32{here: {0, 1}}},
		{Elect: []TopicPartition{here}},
	})
	if err != nil || failed[here] != nil || !UnknownTopic(failed[gone]) {
		t.Fatalf("%v, %v", failed, err)
	}
	if want := []int16{45, 43, 45, 43}; !slices.Equal(keys, want) {
		t.Errorf("served %v, want %v", keys, want)
	}
}

// placementAnswer answers all partitions of a placement request alike.
func placementAnswer(req *kmsg.AlterPartitionAssignmentsRequest, e *kerr.Error) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			rp.Partition = p.Partition
			if e != nil {
				rp.ErrorCode = e.Code
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func TestCancellationThatComesTooEarlyIsRepeated(t *testing.T) {
	fake, c, _ := fakeWithTopic(t, 1, kfake.NumBrokers(3))
	var adds, cancels atomic.Int32
	adding := false
	fake.ControlKey(kmsg.AlterPartitionAssignments.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		req := kreq.(*kmsg.AlterPartitionAssignmentsRequest)
		if req.Topics[0].Partitions[0].Replicas != nil {
			adds.Add(1)
			adding = true
			return placementAnswer(req, nil), nil, true
		}
		if cancels.Add(1); !adding {
			return placementAnswer(req, kerr.NoReassignmentInProgress), nil, true
		}
		adding = false
		return placementAnswer(req, nil), nil, true
	})
	failed, err := c.AddThenCancel(testContext(t), map[TopicPartition][]int32{{"t", 0}: {1, 0}})
	if err != nil || len(failed) > 0 || adding {
		t.Errorf("%v, %v; still adding: %t", failed, err, adding)
	}
	if adds.Load() != 1 || cancels.Load() < 1 {
		t.Errorf("%d additions, %d cancellations", adds.Load(), cancels.Load())
	}
}

func TestAdditionThatCannotBeCancelledIsTold(t *testing.T) {
	fake, c, _ := fakeWithTopic(t, 1, kfake.NumBrokers(3))
	fake.ControlKey(kmsg.AlterPartitionAssignments.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		req := kreq.(*kmsg.AlterPartitionAssignmentsRequest)
		if req.Topics[0].Partitions[0].Replicas != nil {
			return placementAnswer(req, nil), nil, true
		}
		return placementAnswer(req, kerr.NoReassignmentInProgress), nil, true
	})
	here := TopicPartition{"t", 0}
	failed, err := c.AddThenCancel(testContext(t), map[TopicPartition][]int32{here: {1, 0}})
	if err != nil || !errors.Is(failed[here], ErrCompleted) || mirror.KindOf(failed[here]) != mirror.Retriable {
		t.Errorf("%v, %v", failed, err)
	}
}

func TestTransactionalIDs(t *testing.T) {
	fake := startFake(t, kfake.NumBrokers(3))
	c, ctx := openFake(t, fake), testContext(t)
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = kmsg.StringPtr("billing"), 60000
	resp, err := req.RequestWith(ctx, c.Client())
	if err != nil || resp.ErrorCode != 0 {
		t.Fatal(err, resp.ErrorCode)
	}
	found, err := c.TransactionalIDs(ctx, []int64{resp.ProducerID, resp.ProducerID + 1})
	if err != nil || len(found) != 1 || found[resp.ProducerID].ID != "billing" {
		t.Errorf("%v, %v", found, err)
	}
}
