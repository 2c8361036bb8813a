package mmm

// position is a committed offset of a group.
type position struct {
	offset   int64
	metadata string
}

// offsetCase is all that the decision about one committed offset looks at.
type offsetCase struct {
	source      *position // nil: the group has committed nothing at the source
	destination *position // nil: nothing on the destination
	written     int64     // what mirrord committed last; −1: nothing
	start, end  int64     // destination: log start offset and high watermark, read after destination was
	final       bool      // the last commit of a promotion: consumers may be on the destination already
}

// verdict is what is to be done about a committed offset.
type verdict uint8

const (
	nothing verdict = iota // neither side has anything of ours
	level                  // the destination has what it should
	commit                 // commit target
	remove                 // delete on the destination what mirrord had committed
	ahead                  // the destination's group has gone on by itself: left alone
)

// target is what the destination's group should have: the source's offset inside the destination's log. Metadata
// belongs to the offset it was committed with.
func (c offsetCase) target() (p position, clamped bool) {
	offset := max(c.start, min(c.source.offset, c.end))
	if offset != c.source.offset {
		return position{offset, ""}, true
	}
	return *c.source, false
}

// decide applies the rule of SPEC §9. mirrord moves an offset forward, and back only from a place that it wrote itself,
// which happens when the source group was reset: logs only grow, so nothing else lowers the target.
func (c offsetCase) decide() verdict {
	ours := c.destination != nil && c.written >= 0 && c.destination.offset == c.written
	if c.source == nil {
		if ours {
			return remove
		}
		return nothing
	}
	target, _ := c.target()
	switch {
	case c.destination == nil:
		return commit
	case c.destination.offset == target.offset:
		if ours && c.destination.metadata != target.metadata {
			return commit
		}
		return level
	case ours:
		return commit
	case c.final && c.destination.offset < c.written: // reset here since it is STOPPED
		return ahead
	case c.destination.offset < target.offset, c.destination.offset > c.end:
		return commit
	}
	return ahead
}
