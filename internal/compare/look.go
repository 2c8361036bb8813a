package compare

import (
	"context"
	"maps"
)

// What probes read at once.
const (
	probeOffsets = 16
	probeBytes   = 64 << 10
)

// finding is a difference between two logs.
type finding struct {
	offset int64 // of the first record that differs; −1: none found
	what   string
}

var noFinding = finding{offset: -1}

// sight is what was seen of a range.
type sight struct {
	common int64 // offset of a record that both sides have, before the difference; −1: none
	diff   finding
	early  map[int64]struct{} // where aborted transactions began that reach into the range
}

var blank = sight{common: -1, diff: noFinding}

func (s sight) evidence() bool { return s.common >= 0 || s.diff.offset >= 0 }

// look compares [from, to) up to the first difference, or, if brief, up to the first record that says anything.
func (p *pair) look(ctx context.Context, from, to int64, brief bool) (sight, error) {
	src, dst := p.streams(from, to, probeBytes)
	return p.see(ctx, src, dst, brief)
}

// see is look over streams that were made before.
func (p *pair) see(ctx context.Context, src, dst *stream, brief bool) (sight, error) {
	e := eye{pair: p, brief: brief, seen: blank, stray: noFinding}
	err := sideBySide(ctx, src, dst, func(offset int64, s, d *item) (bool, error) { return e.take(ctx, offset, s, d) })
	if e.seen.diff.offset < 0 {
		e.seen.diff = e.stray
	}
	e.seen.early = map[int64]struct{}{}
	maps.Copy(e.seen.early, src.early)
	maps.Copy(e.seen.early, dst.early)
	return e.seen, err
}

// eye is a look at work. A stray is no difference if the logs meet again behind it.
type eye struct {
	*pair
	brief bool
	seen  sight
	stray finding
}

// take judges what both sides hold at an offset, and reports whether there is more to see.
func (e *eye) take(ctx context.Context, offset int64, s, d *item) (goOn bool, err error) {
	r, what := relate(s, d)
	switch r {
	case neither:
		return true, nil
	case equal:
		e.seen.common, e.stray = offset, noFinding
		return !e.brief, nil
	case different:
	case sourceOnly, destinationOnly:
		cleaned, err := e.isCompacted(ctx)
		if err != nil || cleaned && !e.strays(r, offset, d) {
			return true, err
		}
		if cleaned && !e.brief {
			e.stray = earlier(e.stray, finding{offset, what})
			return true, nil
		}
	}
	e.seen.diff = earlier(e.stray, finding{offset, what})
	return false, nil
}

// strays reports whether a record that only the destination has cannot have come from the source, whatever was cleaned
// there: it lies where only mirrors have copied, no mirror wrote it, and the logs are not seen to meet behind it.
func (p *pair) strays(r relation, offset int64, d *item) bool {
	return r == destinationOnly && p.shared >= 0 && offset >= p.shared && offset > p.met && !mirrored(d.producer)
}

// earlier is the first of two findings, of which the second is one.
func earlier(a, b finding) finding {
	if a.offset >= 0 {
		return a
	}
	return b
}

// streams opens both sides for [from, to).
func (p *pair) streams(from, to int64, maxBytes int32) (src, dst *stream) {
	src = &stream{side: p.src, tp: p.srcTP, codec: p.codec, decided: p.decided(), end: to, maxBytes: maxBytes, from: from, next: from}
	dst = &stream{side: p.dst, tp: p.dstTP, codec: p.codec, decided: p.decided(), end: to, maxBytes: maxBytes, from: from, next: from}
	return src, dst
}

// lookBack compares the records before to, further and further back until some record says anything or from is reached.
func (p *pair) lookBack(ctx context.Context, from, to int64) (sight, error) {
	for size := int64(probeOffsets); ; size *= 16 {
		begin := max(from, to-size)
		seen, err := p.look(ctx, begin, to, false)
		if err != nil || seen.evidence() || begin == from {
			return seen, err
		}
		to = begin
	}
}

// firstDifference finds where the logs part, given a difference at a known offset. Logs that have parted do not meet
// again: what is written after that differs at least in its time. So it steps back from the difference, further each
// time, to a record that both have, then halves the distance.
func (p *pair) firstDifference(ctx context.Context, known finding) (sight, error) {
	low, high, best := p.low(), known.offset, sight{common: -1, diff: known}
	step := func(at int64) (common bool, err error) {
		seen, err := p.look(ctx, at, high, true)
		switch {
		case err != nil:
		case seen.common >= 0:
			low, best.common = seen.common+1, seen.common
			return true, nil
		case seen.diff.offset >= 0:
			best.diff, high = seen.diff, at
		default:
			high = at
		}
		return false, err
	}
	for back := int64(2 * probeOffsets); low < high; back *= 4 {
		if common, err := step(max(low, high-back)); err != nil || common {
			if err != nil {
				return best, err
			}
			break
		}
	}
	for high-low > 4*probeOffsets {
		if _, err := step(low + (high-low)/2); err != nil {
			return best, err
		}
	}
	seen, err := p.look(ctx, low, best.diff.offset+1, false)
	best.common = max(best.common, seen.common)
	if err == nil && seen.diff.offset >= 0 {
		best.diff = seen.diff
	}
	return best, err
}
