package promote

import (
	"context"
	"fmt"
	"slices"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// Transaction is an open transaction of one of the destination's own producers.
type Transaction struct {
	Producer        kafka.Producer
	TransactionalID string // empty where the cluster does not tell
}

// String names it for an operator.
func (t Transaction) String() string {
	who := "transactional id " + t.TransactionalID
	if t.TransactionalID == "" {
		who = "producer id " + fmt.Sprint(t.Producer.ID)
	}
	return fmt.Sprintf("%s from offset %d", who, t.Producer.TxnStart)
}

// tellOpen names the transactions of the destination's own producers that outlive a promotion: until their owners end them,
// read_committed consumers do not get beyond them.
func (p *Promoter) tellOpen(ctx context.Context, ts []mirror.Target, results []Result) {
	p.identify(ctx, results)
	for i, r := range results {
		for _, open := range r.Open {
			p.log.Warn("a transaction of the destination's own stays open: its owner has to end it", mirror.KeyMirror, ts[i].Partition.Mirror,
				mirror.KeyTopic, ts[i].Topic, mirror.KeyPartition, ts[i].Index, mirror.KeyCause, open.String())
		}
	}
}

// identify finds the transactional ids of open transactions, as far as the cluster tells them.
func (p *Promoter) identify(ctx context.Context, results []Result) {
	var ids []int64
	for _, r := range results {
		for _, t := range r.Open {
			ids = append(ids, t.Producer.ID)
		}
	}
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	found, err := p.cluster.TransactionalIDs(ctx, slices.Compact(ids))
	if err != nil {
		p.log.Debug("transactional ids not found", mirror.KeyErr, err)
	}
	for _, r := range results {
		for i, t := range r.Open {
			r.Open[i].TransactionalID = found[t.Producer.ID].ID
		}
	}
}
