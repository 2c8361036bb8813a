package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

// PlacementsPerTurn is the most partitions that one Turn may name.
const PlacementsPerTurn = placementsPerRequest

// Turn is one step of a change of placement that is made of several: new replicas for partitions, or the election of
// their first replicas. The other field is empty.
type Turn struct {
	Reassign map[TopicPartition][]int32
	Elect    []TopicPartition
}

// PlaceInTurn sends turns one right behind the other on one connection. A broker serves the requests of a connection in
// order, so each turn finds what the one before has made; and since none waits for an answer, a process that dies leaves a
// change half made only if it does so between two writes. The lease is checked once, before the first. The result holds,
// per partition, the first error of any turn; the turns after it were sent all the same. After an error of the connection,
// look again.
func (c *Cluster) PlaceInTurn(ctx context.Context, turns []Turn) (map[TopicPartition]error, error) {
	const op = "change placement"
	m, err := c.withController(ctx)
	if err != nil {
		return nil, adminError(ctx, op, err)
	}
	conn, _, err := c.laneConn(ctx, laneKey{m.Controller, laneWrite})
	if err != nil {
		return nil, adminError(ctx, op, err)
	}
	if err := checkLease(ctx); err != nil {
		return nil, adminError(ctx, op, err)
	}
	calls := make([]*Call, 0, len(turns))
	for _, t := range turns {
		calls = append(calls, conn.Send(c.turnRequest(t)))
	}
	failed := map[TopicPartition]error{}
	for i, call := range calls {
		if e := waitTurn(ctx, call, turns[i], failed); e != nil && err == nil {
			err = adminError(ctx, op, e)
		}
		call.Release()
	}
	return failed, err
}

// withController is metadata of brokers in which Controller is a broker: the one that decides about placements
// (ZooKeeper), or any, which passes requests on to it (KRaft).
func (c *Cluster) withController(ctx context.Context) (Metadata, error) {
	m, err := c.askMetadata(ctx, []string{})
	if err == nil && m.Controller < 0 {
		err = mirror.Errorf(mirror.Unreachable, "the cluster has no controller now")
	}
	return m, err
}

func (c *Cluster) turnRequest(t Turn) kmsg.Request {
	if len(t.Elect) > 0 {
		return c.electRequest(t.Elect)
	}
	names := make([]TopicPartition, 0, len(t.Reassign))
	for tp := range t.Reassign {
		names = append(names, tp)
	}
	return c.placementRequest(names, t.Reassign)
}

// waitTurn adds the errors of a turn's partitions to failed; its own error is one of the connection.
func waitTurn(ctx context.Context, call *Call, turn Turn, failed map[TopicPartition]error) error {
	resp, err := call.Wait(ctx)
	if err != nil {
		return err
	}
	errs := map[TopicPartition]error{}
	switch r := resp.(type) {
	case *kmsg.AlterPartitionAssignmentsResponse:
		if err := answerError("reassign", r.ErrorCode, r.ErrorMessage); err != nil {
			for tp := range turn.Reassign {
				errs[tp] = err
			}
		}
		readPlacements("reassign", r, errs)
	case *kmsg.ElectLeadersResponse:
		if err := answerError("elect preferred leaders", r.ErrorCode, nil); err != nil {
			setAll(errs, turn.Elect, err)
		}
		readElections(r, errs)
	}
	for tp, err := range errs {
		if err != nil && failed[tp] == nil {
			failed[tp] = err
		}
	}
	return nil
}
