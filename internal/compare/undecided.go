package compare

import (
	"context"
	"fmt"
)

// undecided finds what stays open at the destination though the source has decided it: no consumer of committed records
// gets beyond. It is certain only where the destination has all that the source held after it had decided so much.
func (c *comparison) undecided(ctx context.Context) error {
	decided := c.s.lso
	if c.d.lso >= decided {
		return nil
	}
	if err := c.refresh(ctx); err != nil {
		return err
	}
	if at := c.d.lso; at < decided && c.d.hw >= c.s.hw && (c.last < 0 || at < c.last) {
		c.differs(finding{at, fmt.Sprintf("undecided at the destination, decided at the source up to offset %d", decided)})
	}
	return nil
}
