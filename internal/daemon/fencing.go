package daemon

import (
	"context"
	"sync"

	"mirrord/internal/mirror"
	"mirrord/internal/promote"
)

// fenced knows what continuous fencing was asked for and has come to. It is safe for concurrent use.
type fenced struct {
	risen   sync.Map // mirror.Partition → int32: leader epoch of the source for which the data path asked
	reached sync.Map // mirror.Partition → reach
}

// reach is the leader epoch to which a destination partition was raised. Where that is impossible it counts as raised: it
// is tried again only when the source has risen as far as it would have had to.
type reach struct {
	topic mirror.TopicID // of the destination
	epoch int32
}

// near takes in that the source's leader epoch has come near the destination's, and reports whether that is so: the data
// path hears of a raised epoch from brokers, which may be late.
func (f *fenced) near(t mirror.Target, source int32) bool {
	f.risen.Store(t.Partition, source)
	at, ok := f.reached.Load(t.Partition)
	return !ok || at.(reach).topic != t.DestinationID || source > at.(reach).epoch-promote.Near
}

// fence is the effect of EPOCH_FENCING. The source's leader epoch is the newest that anybody has seen: records may not have
// come under it yet.
func (e *effects) fence(ctx context.Context, targets []mirror.Target) []error {
	above := make(map[mirror.Partition]int32, len(targets))
	note := func(p mirror.Partition, epoch int32) {
		if known, ok := above[p]; epoch >= 0 && (!ok || epoch > known) {
			above[p] = epoch
		}
	}
	for _, p := range e.positions() {
		note(p.Partition, p.SourceEpoch.LeaderEpoch)
	}
	for _, t := range targets {
		note(t.Partition, t.Source.LeaderEpoch)
		if epoch, ok := e.fenced.risen.Load(t.Partition); ok {
			note(t.Partition, epoch.(int32))
		}
	}
	results := e.promoter.Fence(ctx, targets, above)
	for i, t := range targets {
		if source, ok := above[t.Partition]; ok && results[i].Err == nil {
			e.fenced.reached.Store(t.Partition, reach{t.DestinationID, max(results[i].LeaderEpoch, source+promote.Margin)})
		}
	}
	return promote.Errors(results)
}
