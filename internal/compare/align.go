package compare

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// Alignment is the answer for one partition. Offsets are −1 where they could not be read.
type Alignment struct {
	// Err is nil if the destination's log is a prefix of the source's over the range that both hold: go on at its log
	// end. Of kind Diverged it is final; First and Extra say where and how much.
	Err error

	SourceStart, SourceEnd           int64 // log start offset and high watermark
	DestinationStart, DestinationEnd int64 // log start offset and log end offset

	// Seeding: the destination holds nothing but fillers of a seeding that was not finished (protocol R13). Nothing is
	// mirrored yet; seeding may go on.
	Seeding bool
	// Note is worth telling though it is no error; empty: nothing is.
	Note string

	// Stranger: what lies at First was written neither by a mirror nor before both logs were compared.
	Stranger bool

	First int64 // first offset at which the logs differ; −1: none
	Extra int64 // records that only the destination has, from First to its end
}

// How long a transient disagreement is watched before it becomes a retryable error, and how many partitions are looked
// into at once.
const (
	settleLooks = 4
	settlePause = 300 * time.Millisecond
	parallel    = 8
)

// Align compares both logs of each partition around the places where they can have parted: the end of what both hold,
// the last mirrored position (lme, from whoever mirrored last in either direction; NoPosition: unknown; nil: none is
// known), and transactions that were open there. It finds the first difference however far back it lies. The result is
// in the order of the targets. SPEC §7 LOG_TRUNCATION, protocol R7 and R20.
func Align(ctx context.Context, src, dst *kafka.Cluster, ts []mirror.Target, lme func(mirror.Target) mirror.Position) []Alignment {
	if lme == nil {
		lme = func(mirror.Target) mirror.Position { return mirror.NoPosition }
	}
	open := ofClusters(ctx, src, dst, ts)
	return alignAll(ctx, open, func(i int) mirror.Position { return lme(ts[i]) })
}

// ofClusters are the pairs of targets, whose identities go by their ids also where the source has none.
func ofClusters(ctx context.Context, src, dst *kafka.Cluster, ts []mirror.Target) func(context.Context) []*pair {
	open := pairs(clusterSide{src}, clusterSide{dst}, kafka.Codec, byName(ctx, src, ts))
	return func(ctx context.Context) []*pair {
		all := open(ctx)
		for i, t := range ts {
			all[i].of = t.Partition
		}
		return all
	}
}

// byName takes the source topic ids away from targets whose source is too old to give any (before Kafka 2.8): theirs are
// mirrord's own.
func byName(ctx context.Context, src *kafka.Cluster, ts []mirror.Target) []mirror.Target {
	topics := map[string]struct{}{}
	for _, t := range ts {
		topics[t.Topic] = struct{}{}
	}
	if len(topics) == 0 {
		return ts
	}
	m, err := src.Metadata(ctx, slices.Collect(maps.Keys(topics))...)
	if err != nil {
		return ts // the next request tells
	}
	ts = slices.Clone(ts)
	for i := range ts {
		if t, ok := m.Topics[ts[i].Topic]; ok && t.Err == nil && t.ID.IsZero() {
			ts[i].TopicID = mirror.TopicID{}
		}
	}
	return ts
}

// pairs are the targets with the bounds of both logs.
func pairs(src, dst side, codec recordbatch.Codec, ts []mirror.Target) func(ctx context.Context) []*pair {
	return func(ctx context.Context) []*pair {
		all := make([]*pair, len(ts))
		var srcTPs, dstTPs []kafka.TP
		for i, t := range ts {
			all[i] = newPair(src, dst, codec, t)
			srcTPs, dstTPs = append(srcTPs, all[i].srcTP), append(dstTPs, all[i].dstTP)
		}
		var sources map[kafka.TP]bounds
		var wg sync.WaitGroup
		wg.Go(func() { sources = src.bounds(ctx, srcTPs) })
		destinations := dst.bounds(ctx, dstTPs)
		wg.Wait()
		for _, p := range all {
			p.s, p.d = sources[p.srcTP], destinations[p.dstTP]
		}
		return all
	}
}

func alignAll(ctx context.Context, open func(context.Context) []*pair, lme func(int) mirror.Position) []Alignment {
	all := open(ctx)
	results := make([]Alignment, len(all))
	each(len(all), func(i int) { results[i] = all[i].align(ctx, lme(i)) })
	return results
}

// each runs do for 0 to n−1, a few at a time.
func each(n int, do func(int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	wg.Wait()
}

// align answers for one partition whose bounds are known.
func (p *pair) align(ctx context.Context, lme mirror.Position) Alignment {
	seeding, err := p.alignable(ctx)
	a := p.alignment()
	if err != nil || seeding {
		a.Err, a.Seeding = err, seeding
		return a
	}
	p.shared = max(p.shared, lme.Offset)
	first, err := p.part(ctx, lme)
	if err == nil && first.offset >= 0 {
		a.First = first.offset
		a.Stranger, err = p.strangers(ctx, first.offset)
	}
	switch {
	case err != nil:
		a.Err = fmt.Errorf("compare %s: %w", p.dstTP, err)
	case first.offset >= 0:
		a.Extra, a.Err = p.diverged(ctx, first)
	}
	return a
}

// part finds where the logs part: in what both hold, before it or behind it.
func (p *pair) part(ctx context.Context, lme mirror.Position) (finding, error) {
	seen, err := p.search(ctx, lme)
	if err == nil && seen.diff.offset >= 0 && seen.common < 0 {
		seen, err = p.firstDifference(ctx, seen.diff)
	}
	if err != nil {
		return noFinding, err
	}
	if seen.common < 0 {
		if seen.diff, err = p.before(ctx, seen.diff); err != nil {
			return noFinding, err
		}
	}
	if seen.diff.offset < 0 {
		return p.beyond(ctx)
	}
	return seen.diff, nil
}

func (p *pair) alignment() Alignment {
	a := Alignment{SourceStart: p.s.start, SourceEnd: p.s.hw, DestinationStart: p.d.start, DestinationEnd: p.d.leo, First: -1}
	switch {
	case p.boundsErr() != nil:
	case p.d.start > p.s.start && p.d.leo > p.d.start:
		a.Note = fmt.Sprintf("the destination begins at offset %d, the source at %d", p.d.start, p.s.start)
	case p.d.leo < p.s.start && p.d.leo > 0:
		a.Note = fmt.Sprintf("the destination ends at offset %d, the source begins at %d", p.d.leo, p.s.start)
	}
	return a
}

// alignable waits for what may pass within a moment and refuses what needs longer.
func (p *pair) alignable(ctx context.Context) (seeding bool, err error) {
	if err := p.settle(ctx); err != nil {
		return false, err
	}
	if p.d.hw < p.d.leo {
		return false, mirror.Errorf(mirror.Retriable, "%s on the destination: the records up to its log end %d are not replicated yet, only up to %d", p.dstTP, p.d.leo, p.d.hw)
	}
	if p.s.hw < p.d.leo {
		if err := p.confirmShorter(ctx); err != nil {
			return false, err
		}
	}
	if p.d.start < p.d.leo && p.d.leo <= p.s.start {
		if seeding, err = p.endsWithFiller(ctx); seeding || err != nil {
			return seeding, err
		}
	}
	return false, p.transactionsDecided(ctx)
}

// settle asks for the bounds again while a high watermark lags behind: after a leader change it does so for a moment.
func (p *pair) settle(ctx context.Context) error {
	for range settleLooks {
		if p.boundsErr() != nil || p.d.hw == p.d.leo && p.s.hw >= p.d.leo {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settlePause):
		}
		if err := p.refresh(ctx); err != nil {
			return err
		}
	}
	return p.boundsErr()
}

// confirmShorter makes sure that the source's log really ends before the destination's.
func (p *pair) confirmShorter(ctx context.Context) error {
	if p.s.leo >= p.d.leo {
		return mirror.Errorf(mirror.Retriable, "%s at the source: the records up to its log end %d are not replicated yet, only up to %d", p.srcTP, p.s.leo, p.s.hw)
	}
	if p.epoch < 0 {
		return nil
	}
	end, err := p.src.epochEnd(ctx, p.srcTP, p.epoch)
	if err != nil {
		return err
	}
	if end >= p.d.leo {
		return mirror.Errorf(mirror.Retriable, "%s at the source: leader epoch %d ends at offset %d, the log at %d: its leader has not caught up", p.srcTP, p.epoch, end, p.s.leo)
	}
	return nil
}

// transactionsDecided refuses to compare while a transaction is open that will change what is compared (protocol R20).
func (p *pair) transactionsDecided(ctx context.Context) error {
	if p.d.lso < p.d.hw {
		txn, err := p.dst.nativeTxn(ctx, p.dstTP)
		if err != nil {
			return err
		}
		if txn != "" {
			return mirror.Errorf(mirror.Retriable, "%s on the destination: a transaction of its own is open (%s)", p.dstTP, txn).
				WithHint("it goes on when that has ended")
		}
	}
	return nil
}

// endsWithFiller reports whether the destination's last batch is a filler of seeding.
func (p *pair) endsWithFiller(ctx context.Context) (found bool, err error) {
	err = p.batches(ctx, p.d.leo-1, p.d.leo, func(b recordbatch.Batch) { found = recordbatch.IsFiller(b, p.codec) })
	return found, err
}

// search looks where the logs can have parted. What it finds need not be the first difference, unless the sight has a
// common record too.
func (p *pair) search(ctx context.Context, lme mirror.Position) (sight, error) {
	low, high := p.low(), p.high()
	if low >= high {
		return blank, nil
	}
	seen, err := p.lookBack(ctx, low, high)
	if err != nil || seen.diff.offset >= 0 {
		return seen, err
	}
	begins, common := seen.early, seen.common
	p.met = common
	if lme.Offset > low && lme.Offset < high {
		seen, err = p.look(ctx, max(low, lme.Offset-probeOffsets), min(high, lme.Offset+probeOffsets), false)
		if err != nil || seen.diff.offset >= 0 {
			return seen, err
		}
		maps.Copy(begins, seen.early)
		common = max(common, seen.common)
	}
	seen, err = p.searchTransactions(ctx, begins)
	if seen.diff.offset < 0 {
		seen.common = common
	}
	return seen, err
}

// searchTransactions looks at the beginnings of aborted transactions that reached the places compared: there one side
// may have committed what the other has aborted.
func (p *pair) searchTransactions(ctx context.Context, begins map[int64]struct{}) (sight, error) {
	for _, offset := range slices.Sorted(maps.Keys(begins)) {
		if offset < p.low() || offset >= p.high() {
			continue
		}
		seen, err := p.look(ctx, offset, min(p.high(), offset+probeOffsets), true)
		if err != nil || seen.diff.offset >= 0 {
			return seen, err
		}
	}
	return blank, nil
}
