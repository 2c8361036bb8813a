package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

// An addition of a replica that is cancelled before brokers hear of it costs them nothing but the new leader epoch. The
// controller gathers changes for 25 ms (controller.quorum.append.linger.ms), and brokers get what was gathered in one
// piece. A broker passes requests on to the controller one after the other, so the cancellation takes the way over
// another broker, and is repeated until it meets the addition; one that comes too early is answered at once. When brokers
// do hear of it, they create and delete a log for each partition: measured on three brokers and two cores, 12 s for 3,000
// partitions in place of 0.6 s.
//
// More partitions in a request take longer to be passed on than the controller gathers.
const additionsPerRequest = 250

// ErrCompleted marks a replica that was added for good before the addition could be cancelled.
var ErrCompleted = errors.New("the replica was added before that could be cancelled")

// AddThenCancel begins to add replicas to partitions and cancels that at once, which raises their leader epochs by one and
// changes nothing else. Partitions that are not in the result have been raised; those with ErrCompleted must be reassigned
// to what they were. An addition that is in progress already is cancelled, whoever began it: look before. The error is one
// of the connection or the lease; it says nothing about partitions: look again.
func (c *Cluster) AddThenCancel(ctx context.Context, with map[TopicPartition][]int32) (map[TopicPartition]error, error) {
	failed := map[TopicPartition]error{}
	for chunk := range slices.Chunk(slices.Collect(maps.Keys(with)), additionsPerRequest) {
		outcomes, err := c.addThenCancel(ctx, chunk, with)
		if err != nil {
			return failed, err
		}
		maps.Copy(failed, outcomes)
	}
	return failed, nil
}

func (c *Cluster) addThenCancel(ctx context.Context, chunk []TopicPartition, with map[TopicPartition][]int32) (map[TopicPartition]error, error) {
	const op = "add a replica and cancel"
	first, second, err := c.twoWays(ctx)
	if err == nil {
		err = checkLease(ctx)
	}
	if err != nil {
		return nil, adminError(ctx, op, err)
	}
	add := first.Send(c.placementRequest(chunk, with))
	defer add.Release()
	left := c.cancelUntil(ctx, second, chunk, add.Done())
	failed, err := placements(ctx, "add a replica to", chunk, add)
	if err != nil {
		return nil, adminError(ctx, op, err)
	}
	left = slices.DeleteFunc(left, func(tp TopicPartition) bool { return failed[tp] != nil })
	if len(left) == 0 {
		return failed, nil
	}
	late, err := c.sendCancel(ctx, "cancel the addition to", first, left) // on the way of the additions it cannot overtake
	if err != nil {
		return nil, adminError(ctx, op, err)
	}
	for tp, err := range late {
		if NoReassignment(err) {
			err = mirror.Errorf(mirror.Retriable, "%s: %w", tp, ErrCompleted)
		}
		failed[tp] = err
	}
	return failed, nil
}

// cancelUntil cancels additions until all are cancelled, or the request that makes them is answered, and returns those that
// are not. An error only means that this way is no good (brokers beside ZooKeeper do not pass requests on).
func (c *Cluster) cancelUntil(ctx context.Context, conn *Conn, left []TopicPartition, added <-chan struct{}) []TopicPartition {
	for {
		failed, err := c.sendCancel(ctx, "cancel the addition to", conn, left)
		if err != nil {
			return left
		}
		left = slices.DeleteFunc(slices.Clone(left), func(tp TopicPartition) bool { return failed[tp] == nil })
		select {
		case <-added:
			return left
		default:
			if len(left) == 0 {
				return nil
			}
		}
	}
}

// sendCancel sends cancellations on one connection and returns those that were refused.
func (c *Cluster) sendCancel(ctx context.Context, op string, conn *Conn, of []TopicPartition) (map[TopicPartition]error, error) {
	call := conn.Send(c.placementRequest(of, nil))
	defer call.Release()
	return placements(ctx, op, of, call)
}

// twoWays gives connections to two brokers, the first one the controller where it is a broker.
func (c *Cluster) twoWays(ctx context.Context) (first, second *Conn, err error) {
	m, err := c.withController(ctx)
	if err != nil {
		return nil, nil, err
	}
	if first, _, err = c.laneConn(ctx, laneKey{m.Controller, laneWrite}); err != nil {
		return nil, nil, err
	}
	for id := range m.Brokers {
		if id == m.Controller {
			continue
		}
		if second, _, err = c.laneConn(ctx, laneKey{id, laneWrite}); err == nil {
			return first, second, nil
		}
	}
	return first, first, nil
}

// placements waits for the answer to a placement request: an error for every partition that was refused.
func placements(ctx context.Context, op string, chunk []TopicPartition, call *Call) (map[TopicPartition]error, error) {
	resp, err := call.Wait(ctx)
	if err != nil {
		return nil, err
	}
	answer := resp.(*kmsg.AlterPartitionAssignmentsResponse)
	if err := answerError(op+" partitions", answer.ErrorCode, answer.ErrorMessage); err != nil {
		return nil, err
	}
	errs := map[TopicPartition]error{}
	for _, tp := range chunk {
		errs[tp] = missing(op + " " + tp.String())
	}
	readPlacements(op, answer, errs)
	dropNil(errs)
	return errs, nil
}
