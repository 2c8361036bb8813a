package compare

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// judgeKeys judges the records of a compacted topic that only one side holds, after one pass over the range, and makes
// further passes if there were too many keys for one.
func (c *comparison) judgeKeys(ctx context.Context) error {
	var dead []int64
	count := 0
	for {
		if err := c.followTails(ctx); err != nil {
			return err
		}
		if err := c.followOlder(ctx); err != nil {
			return err
		}
		u := c.keys.unmatched()
		if err := c.unequal(ctx, u); err != nil {
			return err
		}
		count += len(u.dead)
		dead = append(dead, u.dead[:min(len(u.dead), keysListed)]...)
		if !c.keys.again() {
			return c.tellDead(ctx, dead, count)
		}
		if err := c.followRange(ctx); err != nil {
			return err
		}
	}
}

// followTails reads on to where the logs end by now: what was written since may supersede what was cleaned since.
func (c *comparison) followTails(ctx context.Context) error {
	if len(c.keys.pending) == 0 {
		return nil
	}
	now := *c.pair
	if err := now.refresh(ctx); err != nil {
		return err
	}
	src, dst := c.streams(c.to, c.to, verifyBytes)
	src.decided, src.end = now.s.lso, now.s.lso
	dst.decided, dst.end = now.d.lso, now.d.lso
	return sideBySide(ctx, src, dst, func(_ int64, s, d *item) (bool, error) {
		for _, i := range []*item{s, d} {
			if i.visible() {
				c.keys.see(i, false, false)
			}
		}
		return true, nil
	})
}

// followRange is a further pass over what was compared before.
func (c *comparison) followRange(ctx context.Context) error {
	src, dst := c.streams(c.from, c.to, verifyBytes)
	return sideBySide(ctx, src, dst, func(_ int64, s, d *item) (bool, error) {
		switch r, _ := relate(s, d); {
		case r == sourceOnly && s.Key != nil:
			c.keys.see(s, true, true)
		case r == destinationOnly && d.Key != nil:
			c.keys.see(d, true, false)
		case r == equal:
			c.keys.see(s, false, true)
		}
		return true, nil
	})
}

// followOlder looks for older records of the keys that are left: of those only the destination has at the source, of
// tombstones that only the source has at the destination.
func (c *comparison) followOlder(ctx context.Context) error {
	atSource, atDestination := c.keys.asks()
	src, dst := c.streams(c.s.start, c.to, verifyBytes)
	dst.from, dst.next = c.d.start, c.d.start
	for _, side := range []struct {
		*stream
		asked, source bool
	}{{src, atSource, true}, {dst, atDestination, false}} {
		if !side.asked {
			continue
		}
		for {
			i, err := side.peek(ctx)
			if err != nil {
				return err
			}
			if i == nil {
				break
			}
			if i.visible() {
				c.keys.holds(i, side.source)
			}
			side.take()
		}
	}
	return nil
}

// unequal reports records of the source that the destination lacks though nothing supersedes them, and of the destination
// that the source never had.
func (c *comparison) unequal(ctx context.Context, u unmatched) error {
	report := func(offsets []int64, s *stream, what string) error {
		if len(offsets) == 0 {
			return nil
		}
		key, err := keyAt(ctx, s.at(offsets[0]))
		if err != nil {
			return err
		}
		c.differs(finding{offsets[0], what + key})
		c.different += int64(len(offsets) - 1)
		c.records += int64(len(offsets))
		return nil
	}
	src, dst := c.streams(0, 0, probeBytes)
	return errors.Join(report(u.lost, src, "the destination lacks the latest record of key "),
		report(u.own, dst, "the source has an older record as the latest of key "))
}

// at turns a stream that was not read yet to a single offset.
func (s *stream) at(offset int64) *stream {
	s.from, s.next, s.end = offset, offset, offset+1
	return s
}

// tellDead lists keys that live on at the destination only.
func (c *comparison) tellDead(ctx context.Context, offsets []int64, count int) error {
	if count == 0 {
		return nil
	}
	var names []string
	for _, offset := range offsets[:min(len(offsets), keysListed)] {
		_, dst := c.streams(offset, offset+1, probeBytes)
		key, err := keyAt(ctx, dst)
		if err != nil {
			return err
		}
		names = append(names, key)
	}
	more := ""
	if count > len(names) {
		more = ", …"
	}
	c.note("%d keys live on at the destination whose tombstones are gone at the source: %s%s", count, strings.Join(names, ", "), more)
	return nil
}

// keyAt shows the key of a stream's first record.
func keyAt(ctx context.Context, s *stream) (string, error) {
	i, err := s.peek(ctx)
	if err != nil || i == nil {
		return "(cleaned meanwhile)", err
	}
	return show(i.Key), nil
}

// show is a key for people.
func show(key []byte) string {
	const longest = 40
	if len(key) > longest {
		return fmt.Sprintf("%q…", key[:longest])
	}
	return fmt.Sprintf("%q", key)
}
