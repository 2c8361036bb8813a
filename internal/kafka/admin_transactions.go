package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Transactional is a transactional id with its producer.
type Transactional struct {
	ID            string
	ProducerID    int64
	ProducerEpoch int16  // −1: not asked for
	State         string // Ongoing, PrepareCommit, …
}

// CompleteCommit is the state of a transactional id whose last transaction was committed, in all partitions.
const CompleteCommit = "CompleteCommit"

// Ended reports whether the coordinator has nothing left to do for the id. What is open of its producer in a partition all
// the same hangs: only a marker ends it.
func (t Transactional) Ended() bool {
	switch t.State {
	case "Empty", CompleteCommit, "CompleteAbort", "Dead":
		return true
	}
	return false
}

// TransactionalIDs finds the transactional ids that belong to producer ids, one request per broker. With an error the
// result is not complete. Needs Kafka 3.0 and DESCRIBE on the transactional ids: others are not listed.
func (c *Cluster) TransactionalIDs(ctx context.Context, producerIDs []int64) (map[int64]Transactional, error) {
	var errs []error
	found := map[int64]Transactional{}
	req := kmsg.NewPtrListTransactionsRequest()
	req.ProducerIDFilters = producerIDs
	shards(ctx, c, "list transactions", req, func(_ *kmsg.ListTransactionsRequest, resp *kmsg.ListTransactionsResponse, err error) {
		if err == nil {
			err = answerError("list transactions", resp.ErrorCode, nil)
		}
		if err != nil {
			errs = append(errs, err)
			return
		}
		for _, t := range resp.TransactionStates {
			found[t.ProducerID] = Transactional{t.TransactionalID, t.ProducerID, -1, t.TransactionState}
		}
	})
	return found, errors.Join(errs...)
}

// Transaction asks the coordinator of a transactional id about its last transaction. Needs Kafka 3.0 and DESCRIBE on the
// id.
func (c *Cluster) Transaction(ctx context.Context, id string) (t Transactional, err error) {
	err = missing("describe transaction " + id)
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	shards(ctx, c, "describe transaction", req, func(_ *kmsg.DescribeTransactionsRequest, resp *kmsg.DescribeTransactionsResponse, failed error) {
		if failed != nil {
			err = failed
			return
		}
		for _, s := range resp.TransactionStates {
			t = Transactional{s.TransactionalID, s.ProducerID, s.ProducerEpoch, s.State}
			err = answerError("describe transaction "+id, s.ErrorCode, nil)
		}
	})
	return t, err
}
