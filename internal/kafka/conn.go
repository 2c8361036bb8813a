package kafka

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

const (
	maxResponse = 256 << 20 // a longer answer is no answer of Kafka's
	readAhead   = 64 << 10
)

// Conn is a connection to one broker for the data path: requests are pipelined in the order of Send, answers end their
// calls in the same order, and bytes of records are never copied. It is safe for concurrent use.
//
// One goroutine reads. It ends when the connection does: by Close, by a fault of the network, by an answer that is not
// one, or by one that did not come in time. A connection that has ended stays so; its owner dials another.
type Conn struct {
	broker   Broker
	cfg      Config
	security *security
	conn     net.Conn
	tcp      *net.TCPConn // for writing many pieces at once; nil under TLS
	pool     *buffers
	format   *kmsg.RequestFormatter
	versions versions
	life     context.Context // of what the connection itself waits for
	cancel   context.CancelFunc

	write    sync.Mutex // guards what follows; held over the write, which is what gives calls an order
	out      []byte
	pieces   net.Buffers
	sent     int32         // correlation id of the last request
	reauth   time.Time     // when the login must be renewed (KIP-368); zero: never
	buffered *bufio.Writer // TLS only

	mu        sync.Mutex // guards what follows; never held over I/O
	pending   []*Call    // sent or about to be, oldest first
	writing   *Call      // its request is going out
	throttled time.Time  // the broker neither reads nor answers before
	err       error      // why the connection ended
	ended     chan struct{}
}

// Dial opens a raw connection to a broker that metadata knows, logs in and asks for the broker's versions.
func (c *Cluster) Dial(ctx context.Context, broker int32) (*Conn, error) {
	return c.dial(ctx, broker, &c.pool)
}

func (c *Cluster) dial(ctx context.Context, broker int32, pool *buffers) (*Conn, error) {
	b, ok := c.Broker(broker)
	if !ok {
		if _, err := c.askMetadata(ctx, []string{}); err != nil {
			return nil, fmt.Errorf("dial broker %d: %w", broker, err)
		}
		if b, ok = c.Broker(broker); !ok {
			return nil, mirror.Errorf(mirror.Unreachable, "dial broker %d: not in the cluster's metadata", broker)
		}
	}
	conn, err := c.security.dial(ctx, "tcp", b.Address())
	if err != nil {
		return nil, requestError(ctx, fmt.Sprintf("dial broker %d at %s", broker, b.Address()), err)
	}
	return newConn(ctx, c, b, conn, pool)
}

func newConn(ctx context.Context, cl *Cluster, b Broker, conn net.Conn, pool *buffers) (*Conn, error) {
	c := &Conn{
		broker: b, cfg: cl.cfg, security: cl.security, conn: conn, pool: pool, ended: make(chan struct{}),
		format: kmsg.NewRequestFormatter(kmsg.FormatterClientID(cl.cfg.ClientID)),
	}
	c.life, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if c.tcp = plainTCP(conn); c.tcp == nil {
		c.buffered = bufio.NewWriterSize(conn, readAhead)
	}
	go c.read()
	stop := context.AfterFunc(ctx, func() { c.fail(context.Cause(ctx)) })
	err := c.handshake()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, requestError(ctx, fmt.Sprintf("open connection to broker %d at %s", b.ID, b.Address()), err)
	}
	return c, nil
}

func plainTCP(conn net.Conn) *net.TCPConn {
	if i, ok := conn.(*impatient); ok {
		conn = i.Conn
	}
	tcp, _ := conn.(*net.TCPConn)
	return tcp
}

// Broker is the broker at the other end.
func (c *Conn) Broker() Broker { return c.broker }

// MaxVersion is the newest version of a request that both sides know; −1: none.
func (c *Conn) MaxVersion(key int16) int16 { return c.versions.max(key) }

// Ended is closed when the connection has ended; Err then says why.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

// Err is why the connection ended; nil: it has not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection and every call that is open. Requests that were sent may still have their effect.
func (c *Conn) Close() { c.fail(errors.New("closed by its owner")) }

// Send sends a request in the newest version that both sides know; a version above 0 in the request is an upper bound.
// It blocks while the broker does not read. An error shows in the call, never here.
func (c *Conn) Send(req kmsg.Request) *Call {
	call := newCall(c.pool, c.cfg.RequestTimeout+requestedWait(req))
	call.req = req
	c.write.Lock()
	defer c.write.Unlock()
	if err := c.renewLogin(); err != nil {
		return c.refuse(call, err)
	}
	return c.send(call)
}

// send writes a call; c.write is held.
func (c *Conn) send(call *Call) *Call {
	if call.req != nil {
		version, err := c.versions.choose(call.req)
		if err != nil {
			return c.refuse(call, err)
		}
		call.req.SetVersion(version)
	}
	c.sent++
	call.correlation = c.sent
	if err := c.enqueue(call); err != nil {
		return c.refuse(call, err)
	}
	if err := c.writeCall(call); err != nil {
		c.fail(fmt.Errorf("write: %w", err)) // ends the call, too
	}
	c.written(call)
	return call
}

// finish ends a call, though not before its request has left: until then the socket may read batches that their owner
// takes back when the call ends.
func (c *Conn) finish(call *Call, resp kmsg.Response, err error) {
	c.mu.Lock()
	if c.writing == call {
		call.early, call.resp, call.err = true, resp, err
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	call.end(resp, err)
}

func (c *Conn) written(call *Call) {
	c.mu.Lock()
	c.writing = nil
	early := call.early
	c.mu.Unlock()
	if early {
		call.end(call.resp, call.err)
	}
}

func (c *Conn) writeCall(call *Call) error {
	if call.produce != nil {
		return c.writeProduce(call.produce, call.correlation)
	}
	c.out = c.format.AppendRequest(c.out[:0], call.req, call.correlation)
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	if cap(c.out) > 1<<20 {
		c.out = nil
	}
	return nil
}

// refuse ends a call of which nothing was sent.
func (c *Conn) refuse(call *Call, err error) *Call {
	kind := Classify(err)
	call.end(nil, mirror.Errorf(kind, "send to broker %d: %w: %w", c.broker.ID, ErrNotSent, err))
	return call
}

// enqueue registers a call for the reader. The time limit of the oldest call is the connection's.
func (c *Conn) enqueue(call *Call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.pending = append(c.pending, call)
	c.writing = call
	until := c.notBefore().Add(call.limit)
	_ = c.conn.SetWriteDeadline(until) // fails on a closed connection only, and then the write tells
	if len(c.pending) == 1 {
		_ = c.conn.SetReadDeadline(until)
	}
	return nil
}

// dequeue takes the oldest call, which now has its answer. The next one's time begins: brokers serve the requests of a
// connection one after the other.
func (c *Conn) dequeue(correlation int32) (*Call, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return nil, c.err
	case len(c.pending) == 0:
		return nil, errors.New("an answer to no request")
	case c.pending[0].correlation != correlation:
		return nil, fmt.Errorf("an answer to request %d where %d was due", correlation, c.pending[0].correlation)
	}
	call := c.pending[0]
	c.pending[0] = nil
	c.pending = c.pending[1:]
	return call, nil
}

// expect sets the time limit of what is the oldest call now.
func (c *Conn) expect(throttled time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if throttled > 0 {
		c.throttled = time.Now().Add(throttled)
	}
	var until time.Time
	if len(c.pending) > 0 {
		until = c.notBefore().Add(c.pending[0].limit)
	}
	_ = c.conn.SetReadDeadline(until)
}

func (c *Conn) notBefore() time.Time {
	if now := time.Now(); now.After(c.throttled) {
		return now
	}
	return c.throttled
}

// fail ends the connection and all its calls, once.
func (c *Conn) fail(cause error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = mirror.Errorf(mirror.Unreachable, "broker %d at %s: %w: %w", c.broker.ID, c.broker.Address(), ErrClosed, cause)
	calls := c.pending
	c.pending = nil
	c.mu.Unlock()
	_ = c.conn.Close()
	c.cancel()
	close(c.ended)
	for _, call := range calls {
		c.finish(call, nil, c.err)
	}
}

// read is the connection's goroutine.
func (c *Conn) read() {
	in := bufio.NewReaderSize(c.conn, readAhead)
	for {
		frame, err := readFrame(in, c.pool)
		if err == nil {
			err = c.answer(frame)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

// answer ends the call that a frame belongs to. An error is the connection's end.
func (c *Conn) answer(frame []byte) error {
	call, err := c.dequeue(int32(binary.BigEndian.Uint32(frame)))
	if err != nil {
		c.pool.put(frame)
		return err
	}
	call.buf = frame
	resp, err := call.decode(frame[4:])
	if err != nil {
		err = fmt.Errorf("decode answer: %w", err)
		c.finish(call, nil, mirror.Errorf(mirror.Unreachable, "broker %d: %w: %w", c.broker.ID, ErrClosed, err))
		return err
	}
	c.expect(throttleOf(resp))
	c.finish(call, resp, nil)
	return nil
}

// readFrame reads one answer: its correlation id and what follows. What a length claims is believed up to a limit only.
func readFrame(in *bufio.Reader, pool *buffers) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	n := int32(binary.BigEndian.Uint32(head[:]))
	if n < 4 || n > maxResponse {
		return nil, fmt.Errorf("read: an answer of %d bytes is none of Kafka's", n)
	}
	frame := pool.get(int(n))
	if _, err := io.ReadFull(in, frame); err != nil {
		pool.put(frame)
		return nil, fmt.Errorf("read: %w", err)
	}
	return frame, nil
}
