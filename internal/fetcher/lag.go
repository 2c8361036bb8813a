package fetcher

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// lagClock tells how old the oldest record is that is not mirrored yet. It goes by when this host first saw the source's
// high watermark beyond an offset; only what was there before the first look goes by record time. So it is never
// negative, and 0 when level, whatever times records carry.
type lagClock struct {
	mu      sync.Mutex
	marks   []mark // rising in both
	backlog int64  // below: there before the first look
	head    time.Time
	began   bool
}

// mark: the source reached end at a time.
type mark struct {
	end int64
	at  time.Time
}

const maxMarks = 64

// saw notes the source's high watermark.
func (c *lagClock) saw(end int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.began {
		c.began, c.backlog, c.head = true, end, now
	}
	n := len(c.marks)
	switch {
	case n > 0 && c.marks[n-1].end >= end:
		return
	case n > 1 && now.Sub(c.marks[n-2].at) < 100*time.Millisecond:
		c.marks[n-1].end = end // the older time stays: never younger than the truth
		return
	case n == maxMarks: // halve the resolution
		for i := range n / 2 {
			c.marks[i] = mark{c.marks[2*i+1].end, c.marks[2*i].at}
		}
		c.marks = c.marks[:n/2]
	}
	c.marks = append(c.marks, mark{end, now})
}

// reached forgets what the destination has.
func (c *lagClock) reached(end int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(c.marks) && c.marks[n].end <= end {
		n++
	}
	if n > 0 {
		c.marks = c.marks[:copy(c.marks, c.marks[n:])]
	}
}

// writing notes the record time of what is written next, at an offset: while a backlog is worked off, it tells the age.
func (c *lagClock) writing(from int64, millis int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began && from < c.backlog && millis > 0 {
		c.head = time.UnixMilli(millis)
	}
}

// oldest is the time of the oldest record above end, while the source has some up to another: since now, if all that is
// known is of records that the destination was seen to have and has not any more.
func (c *lagClock) oldest(end, source int64, now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, _ := slices.BinarySearchFunc(c.marks, end, func(m mark, end int64) int { return cmp.Compare(m.end, end+1) })
	if n == len(c.marks) {
		c.marks = append(c.marks, mark{source, now})
	}
	if m := c.marks[n]; end >= c.backlog || m.at.Before(c.head) {
		return m.at
	}
	return c.head
}

// restart makes what is there at the next look count as backlog. That it was there before stays known.
func (c *lagClock) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.began = false
}
