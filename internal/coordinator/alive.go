package coordinator

import "context"

// Alive returns once the event loop has taken a turn, and fails if it takes none before ctx ends: for a watchdog that
// must not vouch for a loop that hangs. Until the group has confirmed this instance once there may be no loop yet, which
// is no failure.
func (c *Coordinator) Alive(ctx context.Context) error {
	if !c.Joined() {
		return nil
	}
	turn := make(chan struct{})
	if !c.box.post(func() { close(turn) }) {
		return nil // the loop has ended in order
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
