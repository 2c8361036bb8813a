package compare

import (
	"context"
	"fmt"

	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// generations is how many of a mirror's identities are told by their producer ids (protocol R10).
const generations = 8

// before looks at what the destination holds below the source's log start, once nothing in what both hold shows that the
// logs have been one. Beyond what is known to be shared, only mirrors have copied anything; where nothing is known, only
// what this mirror wrote is shared. The rest must be told before the log start follows the source's.
func (p *pair) before(ctx context.Context, seen finding) (finding, error) {
	from, to := max(p.shared, p.d.start), min(p.s.start, p.d.leo)
	if from >= to {
		return seen, nil
	}
	what := fmt.Sprintf("the source begins at offset %d; both logs are known to be one up to %d", p.s.start, p.shared)
	if p.shared >= 0 {
		own, err := p.unmirrored(ctx, from)
		if err != nil || own < 0 {
			return seen, err
		}
		from = max(from, own)
	} else {
		if written, err := p.endsWithOurs(ctx); written || err != nil {
			return seen, err
		}
		what = fmt.Sprintf("the source begins at offset %d; nothing is left to show that it had what lies before", p.s.start)
	}
	first, err := p.firstVisible(ctx, from, to)
	if err != nil || first < 0 {
		return seen, err
	}
	return finding{first, what}, nil
}

// endsWithOurs reports whether this mirror wrote the destination's last batch of data, or the mirror is known to go on.
func (p *pair) endsWithOurs(ctx context.Context) (bool, error) {
	if p.goesOn {
		return true, nil
	}
	last, any := int64(-1), false
	err := p.back(ctx, p.d.start, func(b recordbatch.Batch) { last, any = b.ProducerID(), true }, func() bool { return any })
	for g := range int32(generations) {
		if last == mirror.IdentityID(p.of.Mirror, p.of.TopicID, g) {
			return true, err
		}
	}
	return false, err
}

// unmirrored is where the batches of data begin, from an offset on, that end the destination's log and that no mirror
// wrote; −1: a mirror wrote the last one, or there is none.
func (p *pair) unmirrored(ctx context.Context, from int64) (first int64, err error) {
	first, met := -1, false
	err = p.back(ctx, from, func(b recordbatch.Batch) {
		switch {
		case mirrored(b.ProducerID()):
			first, met = -1, true
		case first < 0 || b.BaseOffset() < first:
			first = b.BaseOffset()
		}
	}, func() bool { return met })
	return first, err
}

// mirrored reports whether it was a mirror that wrote under a producer id.
func mirrored(producerID int64) bool { return producerID >= mirror.MirroredProducerIDs }

// back shows the destination's batches of data, in order, from further and further back to its end, until enough.
func (p *pair) back(ctx context.Context, floor int64, show func(recordbatch.Batch), enough func() bool) error {
	for size := int64(probeOffsets); ; size *= 16 {
		begin := max(floor, p.d.leo-size)
		err := p.batches(ctx, begin, p.d.leo, func(b recordbatch.Batch) {
			if !b.IsControl() {
				show(b)
			}
		})
		if err != nil || enough() || begin == floor {
			return err
		}
	}
}

// batches shows each batch of the destination that reaches into [from, to).
func (p *pair) batches(ctx context.Context, from, to int64, show func(recordbatch.Batch)) error {
	_, dst := p.streams(from, to, probeBytes)
	dst.decided, dst.onBatch = 0, show // whoever wrote it, committed or not
	for {
		i, err := dst.peek(ctx)
		if i == nil || err != nil {
			return err
		}
		dst.take()
	}
}

// firstVisible is the offset of the first record in [from, to) that a consumer of the destination gets; −1: none.
func (p *pair) firstVisible(ctx context.Context, from, to int64) (int64, error) {
	_, dst := p.streams(from, to, 1<<20)
	dst.decided = p.d.lso
	for {
		i, err := dst.peek(ctx)
		switch {
		case err != nil || i == nil:
			return -1, err
		case i.visible():
			return i.Offset, nil
		}
		dst.take()
	}
}

// strangers reports whether somebody else than a mirror wrote what lies at an offset, where only mirrors write.
func (p *pair) strangers(ctx context.Context, offset int64) (found bool, err error) {
	if !p.goesOn || p.shared < 0 || offset < p.shared || offset < p.d.start {
		return false, nil
	}
	err = p.batches(ctx, offset, offset+1, func(b recordbatch.Batch) { found = !b.IsControl() && !mirrored(b.ProducerID()) })
	return found, err
}
