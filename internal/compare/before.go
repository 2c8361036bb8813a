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
// logs have been one. Beyond the last mirrored position that is of the destination's own; where no such position is known,
// all is, unless this mirror wrote the last of it. It must be told before the log start follows the source's.
func (p *pair) before(ctx context.Context, lme mirror.Position, seen finding) (finding, error) {
	from, to := max(lme.Offset, p.d.start), min(p.s.start, p.d.leo)
	if from >= to {
		return seen, nil
	}
	what := fmt.Sprintf("the source begins at offset %d; the last mirrored offset is %d", p.s.start, lme.Offset)
	if lme.Offset < 0 {
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
	id, err := p.lastWriter(ctx)
	for g := range int32(generations) {
		if id == mirror.IdentityID(p.of.Mirror, p.of.TopicID, g) {
			return true, err
		}
	}
	return false, err
}

// lastWriter is the producer id of the last batch of data at the destination; −1: it has none, or there is none.
func (p *pair) lastWriter(ctx context.Context) (int64, error) {
	for size := int64(probeOffsets); ; size *= 16 {
		begin, id, found := max(p.d.start, p.d.leo-size), int64(-1), false
		err := p.batches(ctx, begin, p.d.leo, func(b recordbatch.Batch) {
			if !b.IsControl() {
				id, found = b.ProducerID(), true
			}
		})
		if err != nil || found || begin == p.d.start {
			return id, err
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
