package compare

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
)

// comparison is one partition being verified.
type comparison struct {
	*pair
	last     int64 // up to where a stopped partition was mirrored; −1: unknown
	counted  func(records int64)
	from, to int64
	cleaned  bool // compaction: a record that one side lacks may have been superseded
	keysMax  int
	keys     *superseded // nil: not followed, since not every record is read

	records   int64
	reported  int64 // of records, to counted
	different int64
	diff      finding
	notes     []string
}

// compare reads the range that both sides hold.
func (c *comparison) compare(ctx context.Context, full bool) (err error) {
	if c.cleaned, err = c.isCompacted(ctx); err != nil {
		return err
	}
	c.from = c.low()
	c.to = max(c.from, min(c.high(), c.decided()))
	c.tellEnds()
	if full && c.cleaned {
		c.keys = newSuperseded(c.keysMax)
	}
	parts, read := windows(c.from, c.to, full), int64(0)
	for _, w := range parts {
		if err := c.window(ctx, w); err != nil {
			return err
		}
		read += w[1] - w[0]
	}
	if len(parts) > 1 {
		c.note("sample: %d of %d offsets compared", read, c.to-c.from)
	}
	if c.keys != nil {
		return c.judgeKeys(ctx)
	}
	return c.tellCleaning(ctx)
}

// tellCleaning says where records have gone that a copy of a topic that is not compacted lacks.
func (c *comparison) tellCleaning(ctx context.Context) error {
	if c.cleaned || c.different == 0 {
		return nil
	}
	cleans, err := c.dst.compacted(ctx, c.dstTP.Topic)
	if cleans {
		c.note("the destination topic is compacted, the source's is not")
	}
	return err
}

// What is read between two reports of progress.
const (
	reportRecords = 100_000
	reportBytes   = 32 << 20
)

// windows are the parts of [from, to) to read, in order.
func windows(from, to int64, full bool) [][2]int64 {
	if full || to-from <= wholeBelow {
		return [][2]int64{{from, to}}
	}
	parts := [][2]int64{{from, from + endWindow}}
	begin, stretch := from+endWindow, (to-from-2*endWindow)/sampleWindows
	for i := range int64(sampleWindows) {
		at := begin + i*stretch + rand.Int64N(stretch-sampleWindow+1)
		parts = append(parts, [2]int64{at, at + sampleWindow})
	}
	return append(parts, [2]int64{to - endWindow, to})
}

func (c *comparison) window(ctx context.Context, w [2]int64) error {
	src, dst := c.streams(w[0], w[1], verifyBytes)
	told := int64(0)
	err := sideBySide(ctx, src, dst, func(offset int64, s, d *item) (bool, error) {
		c.judge(offset, s, d)
		if c.records-c.reported >= reportRecords || src.bytes-told >= reportBytes {
			told = src.bytes
			c.report()
		}
		return true, nil
	})
	c.report()
	if moved := max(src.from, dst.from); err == nil && moved > w[0] {
		c.note("offsets below %d expired meanwhile", moved)
	}
	return err
}

func (c *comparison) report() {
	c.counted(c.records - c.reported)
	c.reported = c.records
}

// judge takes what both sides hold at an offset.
func (c *comparison) judge(offset int64, s, d *item) {
	r, what := relate(s, d)
	switch {
	case r == neither:
		return
	case c.cleaned && r == sourceOnly && s.Key != nil:
		c.follow(s, true, true)
		return
	case c.cleaned && r == destinationOnly && d.Key != nil:
		c.follow(d, true, false)
		return
	case r == equal && c.cleaned:
		c.follow(s, false, true)
	}
	c.records++
	if r == equal {
		return
	}
	c.differs(finding{offset, what})
}

// follow remembers keys where every later record of them will be seen.
func (c *comparison) follow(i *item, alone, atSource bool) {
	if c.keys != nil {
		c.keys.see(i, alone, atSource)
	}
}

func (c *comparison) differs(f finding) {
	c.different++
	if c.diff.offset < 0 || f.offset < c.diff.offset {
		c.diff = f
	}
}

// tellEnds notes what only one side holds, and what is not decided.
func (c *comparison) tellEnds() {
	switch {
	case c.s.start < c.d.start:
		c.note("the source begins at offset %d, the destination at %d", c.s.start, c.d.start)
	case c.s.start > c.d.start:
		c.note("the destination begins at offset %d, the source at %d", c.d.start, c.s.start)
	}
	switch {
	case c.s.hw > c.d.hw:
		c.note("the source has %d more offsets", c.s.hw-c.d.hw)
	case c.s.hw < c.d.hw:
		c.note("the destination has %d more offsets", c.d.hw-c.s.hw)
	}
	if open := c.high() - c.to; open > 0 && c.to > c.from {
		c.note("%d offsets from %d on are not compared: a transaction is open", open, c.to)
	}
}

func (c *comparison) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// detail is all there is to say, the difference first.
func (c *comparison) detail() string {
	notes := c.notes
	if c.diff.offset >= 0 {
		where := ""
		if c.last >= 0 && c.diff.offset >= c.last {
			where = fmt.Sprintf(" (beyond the last mirrored offset %d: a failback would meet it)", c.last)
		}
		notes = append([]string{fmt.Sprintf("offset %d: %s%s; %d of %d records differ", c.diff.offset, c.diff.what, where, c.different, c.records)}, notes...)
	}
	return strings.Join(notes, "; ")
}
