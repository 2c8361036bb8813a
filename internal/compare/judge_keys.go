package compare

import (
	"context"
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
		lost, more := c.keys.unmatched()
		if err := c.lost(ctx, lost); err != nil {
			return err
		}
		count += len(more)
		dead = append(dead, more[:min(len(more), keysListed)]...)
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

// lost reports records of the source that the destination lacks though nothing supersedes them.
func (c *comparison) lost(ctx context.Context, offsets []int64) error {
	if len(offsets) == 0 {
		return nil
	}
	src, _ := c.streams(offsets[0], offsets[0]+1, probeBytes)
	key, err := keyAt(ctx, src)
	if err != nil {
		return err
	}
	c.differs(finding{offsets[0], "the destination lacks the latest record of key " + key})
	c.different += int64(len(offsets) - 1)
	c.records += int64(len(offsets))
	return nil
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
