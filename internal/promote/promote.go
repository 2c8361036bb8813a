package promote

import (
	"context"
	"log/slog"
	"sync/atomic"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// Deps are what a Promoter works with.
type Deps struct {
	Destination *kafka.Cluster
	Lease       func() error // asked right before each request that changes something; nil: no lease
	Log         *slog.Logger // nil: silent
}

// Promoter raises leader epochs and ends transactions on one destination. It is safe for concurrent use.
type Promoter struct {
	cluster *kafka.Cluster
	lease   func() error
	log     *slog.Logger
	told    atomic.Bool // that epochs cannot be raised here
}

// New makes a Promoter.
func New(d Deps) *Promoter {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	return &Promoter{cluster: d.Destination, lease: d.Lease, log: d.Log}
}

// Result is the outcome for one target.
type Result struct {
	// Err is nil when all was done that can be done; mirror.KindOf tells what to do about it.
	Err error
	// LeaderEpoch is the destination's leader epoch as last seen; −1: unknown.
	LeaderEpoch int32
	// NotRaised is why the leader epoch could not be raised, where that is no error; empty: it was, or need not be.
	NotRaised string
	// Aborted are the transactions that were ended.
	Aborted int
	// Open are the transactions of the destination's own producers, which stay open: theirs to end.
	Open []Transaction
}

// Errors are the errors of results alone, in their order.
func Errors(results []Result) []error {
	errs := make([]error, len(results))
	for i, r := range results {
		errs[i] = r.Err
	}
	return errs
}

// Promote is the part of STOPPING that follows the drain and the record of the last mirrored position: the leader epoch
// is raised by one, unless the mirror says off, and every transaction of a mirrored producer that is still open is aborted.
// Results stand in the order of targets. What keeps an epoch from being raised does not keep a partition from being
// promoted (SPEC §2, P3), save that it has no leader.
func (p *Promoter) Promote(ctx context.Context, ts []mirror.Target) []Result {
	ctx = kafka.WithLease(ctx, p.lease)
	results := newResults(ts)
	p.raise(ctx, ts, results, goal{
		wanted: func(t mirror.Target, epoch int32) int32 {
			if t.Mirror != nil && t.Mirror.EpochFencing == mirror.Off {
				return epoch
			}
			return epoch + 1
		},
		reorder:  true,
		optional: true,
	})
	p.abort(ctx, ts, results)
	return results
}

// Near is how little the destination's leader epoch may be above the source's before it is raised (SPEC §7).
const Near = 3

// Margin is how far above the source's leader epoch a fenced partition is raised, so that it is not at once in need again
// (SPEC §7).
const Margin = 10

// Fence is the effect of EPOCH_FENCING: it raises leader epochs to at least 10 above those of the source. Leaders do not
// move. A partition without an entry in source stays as it is. Results stand in the order of targets.
func (p *Promoter) Fence(ctx context.Context, ts []mirror.Target, source map[mirror.Partition]int32) []Result {
	ctx = kafka.WithLease(ctx, p.lease)
	results := newResults(ts)
	p.raise(ctx, ts, results, goal{wanted: func(t mirror.Target, epoch int32) int32 {
		if of, ok := source[t.Partition]; ok {
			return max(epoch, of+Margin)
		}
		return epoch
	}})
	return results
}

func newResults(ts []mirror.Target) []Result {
	results := make([]Result, len(ts))
	for i := range results {
		results[i].LeaderEpoch = -1
	}
	return results
}

func (p *Promoter) leased() error {
	if p.lease == nil {
		return nil
	}
	return p.lease()
}
