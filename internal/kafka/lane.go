package kafka

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A lane is one connection per broker for one sort of batched request, so that long answers of one sort do not hold up
// the others. Nothing here is repeated if it can have had an effect.
type lane int

const (
	laneLook  lane = iota // offsets, producers, epochs
	laneRead              // records
	laneWrite             // markers
)

type laneKey struct {
	broker int32
	lane   lane
}

// laneConns holds the connections. Each is dialled when it is first needed and again after it ended.
type laneConns struct {
	mu    sync.Mutex // guards what follows
	slots map[laneKey]*laneSlot
	done  bool
}

type laneSlot struct {
	dialing chan struct{} // holds one token while somebody looks for the connection or dials it
	conn    *Conn         // guarded by laneConns.mu
}

func (l *laneConns) slot(key laneKey) *laneSlot {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slots == nil {
		l.slots = map[laneKey]*laneSlot{}
	}
	s := l.slots[key]
	if s == nil {
		s = &laneSlot{dialing: make(chan struct{}, 1)}
		l.slots[key] = s
	}
	return s
}

// open gives a slot's connection if it has not ended.
func (l *laneConns) open(s *laneSlot) *Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.conn == nil || s.conn.Err() != nil {
		return nil
	}
	return s.conn
}

func (l *laneConns) put(s *laneSlot, conn *Conn) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done {
		conn.Close()
		return errClusterClosed
	}
	s.conn = conn
	return nil
}

var errClusterClosed = errors.New("cluster closed")

// laneConn gives a connection that has not ended, and whether it was dialled just now.
func (c *Cluster) laneConn(ctx context.Context, key laneKey) (conn *Conn, fresh bool, err error) {
	slot := c.lanes.slot(key)
	select {
	case slot.dialing <- struct{}{}:
	case <-ctx.Done():
		return nil, false, requestError(ctx, "find a connection", context.Cause(ctx))
	}
	defer func() { <-slot.dialing }()
	if conn := c.lanes.open(slot); conn != nil {
		return conn, false, nil
	}
	if conn, err = c.dial(ctx, key.broker, &c.unpooled); err == nil {
		err = c.lanes.put(slot, conn)
	}
	return conn, true, err
}

// look sends requests that only read to one broker, in order on one connection, and waits for all answers. A connection
// that turns out to have ended is replaced once.
func (c *Cluster) look(ctx context.Context, key laneKey, reqs ...kmsg.Request) ([]kmsg.Response, error) {
	bounds := make([]int16, len(reqs))
	for i, req := range reqs {
		bounds[i] = req.GetVersion()
	}
	for {
		conn, fresh, err := c.laneConn(ctx, key)
		if err != nil {
			return nil, err
		}
		answers, err := sendAll(ctx, conn, reqs)
		if err == nil || fresh || !errors.Is(err, ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return answers, err
		}
		for i, req := range reqs {
			req.SetVersion(bounds[i])
		}
	}
}

// sendAll leaves the buffers of the answers to the garbage collector, since answers may alias them.
func sendAll(ctx context.Context, conn *Conn, reqs []kmsg.Request) ([]kmsg.Response, error) {
	calls := make([]*Call, len(reqs))
	for i, req := range reqs {
		calls[i] = conn.Send(req)
	}
	answers := make([]kmsg.Response, len(reqs))
	for i, call := range calls {
		var err error
		if answers[i], err = call.Wait(ctx); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// Reset ends the connections over which this package writes in its own name (markers): what was sent may still have its
// effect, what was not is never sent (protocol R16).
func (c *Cluster) Reset() {
	c.lanes.each(func(key laneKey, conn *Conn) {
		if key.lane == laneWrite {
			conn.Close()
		}
	})
}

func (l *laneConns) each(do func(laneKey, *Conn)) {
	l.mu.Lock()
	open := make(map[laneKey]*Conn, len(l.slots))
	for key, slot := range l.slots {
		if slot.conn != nil {
			open[key] = slot.conn
		}
	}
	l.mu.Unlock()
	for key, conn := range open {
		do(key, conn)
	}
}

func (l *laneConns) close() {
	l.mu.Lock()
	l.done = true
	l.mu.Unlock()
	l.each(func(_ laneKey, conn *Conn) { conn.Close() })
}
