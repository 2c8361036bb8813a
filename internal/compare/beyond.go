package compare

import (
	"context"
	"fmt"

	"mirrord/internal/mirror"
)

// beyond looks at what follows the part that both logs hold, once that part agrees.
func (p *pair) beyond(ctx context.Context) (finding, error) {
	if err := p.openAtSource(ctx); err != nil {
		return noFinding, err
	}
	if p.d.leo <= p.s.leo {
		return noFinding, nil
	}
	t, err := p.countFrom(ctx, max(p.s.leo, p.d.start))
	if err != nil {
		return noFinding, err
	}
	if t.records == 0 {
		return noFinding, mirror.Errorf(mirror.Retriable, "%s on the destination ends at offset %d, the source at %d; what lies between holds no record", p.dstTP, p.d.leo, p.s.leo).
			WithHint("it goes on when the source has got further, if it leaves those offsets without a record too")
	}
	return finding{t.first, "the source has no record there"}, nil
}

// openAtSource refuses to go on over a transaction that is open at the source and was ended on the destination when
// that was promoted: the source may yet commit it.
func (p *pair) openAtSource(ctx context.Context) error {
	high := p.high()
	if p.s.lso >= p.d.lso || p.s.lso >= high || p.s.lso < p.d.start {
		return nil
	}
	dst := &stream{side: p.dst, tp: p.dstTP, codec: p.codec, decided: p.d.lso, end: min(high, p.d.lso), maxBytes: probeBytes, from: p.s.lso, next: p.s.lso}
	for {
		i, err := dst.peek(ctx)
		if err != nil || i == nil {
			return err
		}
		if i.aborted {
			return mirror.Errorf(mirror.Retriable, "%s: a transaction is open at the source from offset %d; the destination has aborted it", p.srcTP, p.s.lso).
				WithHint("it goes on when the source has aborted it too")
		}
		dst.take()
	}
}

// countBytes bounds what is read to count what only the destination has.
const countBytes = 256 << 20

// tally counts the records of a part of a log.
type tally struct {
	records        int64
	more           bool // there are more, not counted
	first          int64
	oldest, newest int64 // timestamps, ms
}

// countFrom counts what a consumer gets of the destination from an offset to its end.
func (p *pair) countFrom(ctx context.Context, from int64) (tally, error) {
	t := tally{first: -1}
	dst := &stream{side: p.dst, tp: p.dstTP, codec: p.codec, decided: p.d.lso, end: p.d.hw, maxBytes: 1 << 20, from: from, next: from}
	for {
		i, err := dst.peek(ctx)
		if err != nil || i == nil {
			return t, err
		}
		if i.visible() {
			t.add(i)
		}
		dst.take()
		if dst.bytes > countBytes {
			t.more = true
			return t, nil
		}
	}
}

func (t *tally) add(i *item) {
	if t.records == 0 {
		t.first, t.oldest, t.newest = i.Offset, i.Timestamp, i.Timestamp
	}
	t.records++
	t.oldest, t.newest = min(t.oldest, i.Timestamp), max(t.newest, i.Timestamp)
}

func (t tally) String() string {
	more := ""
	if t.more {
		more = "more than "
	}
	switch t.records {
	case 0:
		return "no record"
	case 1:
		return fmt.Sprintf("1 record (of %s)", at(t.oldest))
	}
	return fmt.Sprintf("%s%d records (of %s to %s)", more, t.records, at(t.oldest), at(t.newest))
}

// diverged counts what only the destination has and says what can be done.
func (p *pair) diverged(ctx context.Context, f finding) (extra int64, err error) {
	t, err := p.countFrom(ctx, f.offset)
	if err != nil {
		return 0, fmt.Errorf("compare %s: count the records that only the destination has: %w", p.dstTP, err)
	}
	if t.records == 0 {
		return 0, mirror.Errorf(mirror.Diverged,
			"%s differs from the source from offset %d on (%s); from there to its log end %d the destination has no record of its own, only offsets that hold none; the source ends at %d",
			p.dstTP, f.offset, f.what, p.d.leo, p.s.hw).
			WithHint(`"mirrord recover --reseed" copies the partition's topic again`)
	}
	return t.records, mirror.Errorf(mirror.Diverged,
		"%s differs from the source from offset %d on (%s); from there to its log end %d the destination has %s of its own; the source ends at %d",
		p.dstTP, f.offset, f.what, p.d.leo, t, p.s.hw).
		WithHint(`"mirrord recover --reseed" saves them to a file and copies the partition's topic again; or leave it as it is`)
}
