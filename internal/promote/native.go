package promote

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

// OpenNative looks whether the destination's own producers have transactions open in partitions that are to become mirror
// partitions again (protocol R20). It looks once: the error of a partition where that is so is retriable and names the
// transactions, since they end by themselves or by their owner. Errors stand in the order of targets.
func (p *Promoter) OpenNative(ctx context.Context, ts []mirror.Target) []error {
	errs, results, tps := make([]error, len(ts)), newResults(ts), make([]kafka.TP, len(ts))
	for i, t := range ts {
		tps[i] = target(t)
	}
	answers := p.cluster.Producers(ctx, tps)
	for i, tp := range tps {
		if errs[i] = answers[tp].Err; errs[i] != nil {
			continue
		}
		for _, pr := range answers[tp].Producers {
			if pr.TxnStart >= 0 && pr.ID < mirror.MirroredProducerIDs {
				results[i].Open = append(results[i].Open, Transaction{Producer: pr})
			}
		}
	}
	p.identify(ctx, results)
	for i, r := range results {
		if len(r.Open) > 0 {
			errs[i] = mirror.Errorf(mirror.Retriable, "transactions are open in %s: %s", tps[i], list(r.Open)).
				WithHint("wait for them, or end them with kafka-transactions.sh abort")
		}
	}
	return errs
}

func list(ts []Transaction) string {
	texts := make([]string, len(ts))
	for i, t := range ts {
		texts[i] = t.String()
	}
	return strings.Join(texts, ", ")
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
