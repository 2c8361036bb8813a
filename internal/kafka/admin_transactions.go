package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Transactional is a transactional id with its producer.
type Transactional struct {
	ID         string
	ProducerID int64
	State      string // Ongoing, PrepareCommit, …
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
			found[t.ProducerID] = Transactional{t.TransactionalID, t.ProducerID, t.TransactionState}
		}
	})
	return found, errors.Join(errs...)
}
