package kafka

import (
	"context"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Call is a request on its way. It ends exactly once: with an answer, or with an error that says whether the request
// can have had an effect (AfterAppendDoubt).
//
// The caller holds one reference and gives it back with Release once it needs neither the answer nor the bytes that
// the answer aliases; it may do so before the call has ended. Each Retain needs a Release of its own.
type Call struct {
	req         kmsg.Request
	produce     *ProduceRequest // req is nil then
	correlation int32
	limit       time.Duration // from when the broker can have begun with it
	done        chan struct{}

	// Written before done is closed, not after.
	resp      kmsg.Response
	err       error
	throttled time.Duration
	early     bool // resp and err are known, and wait for the request to have left; guarded by Conn.mu

	pool *buffers
	buf  []byte
	refs atomic.Int32 // the caller's, and one of the connection until the call has ended
}

func newCall(pool *buffers, limit time.Duration) *Call {
	c := &Call{limit: limit, done: make(chan struct{}), pool: pool}
	c.refs.Store(2)
	return c
}

// Done is closed when the call has ended.
func (c *Call) Done() <-chan struct{} { return c.done }

// Response waits for the end of the call. Bytes inside the response are valid until the last Release.
func (c *Call) Response() (kmsg.Response, error) {
	<-c.done
	return c.resp, c.err
}

// Wait is Response, but not beyond ctx. The call itself goes on; its answer is dropped.
func (c *Call) Wait(ctx context.Context) (kmsg.Response, error) {
	select {
	case <-c.done:
		return c.resp, c.err
	case <-ctx.Done():
		return nil, requestError(ctx, "wait for the answer", context.Cause(ctx))
	}
}

// Throttled is how long the broker delays this connection for a quota (KIP-219). Valid once the call has ended.
func (c *Call) Throttled() time.Duration { return c.throttled }

// Held is how much memory the call's buffer takes. Valid between the end of the call and the last Release.
func (c *Call) Held() int { return cap(c.buf) }

// Retain adds a reference. Only who holds one may add one.
func (c *Call) Retain() { c.refs.Add(1) }

// Release gives a reference back. The last one frees the buffer.
func (c *Call) Release() {
	switch n := c.refs.Add(-1); {
	case n < 0:
		panic("kafka: call released more often than it was held")
	case n == 0 && c.buf != nil:
		c.pool.put(c.buf)
		c.buf = nil
	}
}

// end is called once, by the connection.
func (c *Call) end(resp kmsg.Response, err error) {
	c.resp, c.err, c.throttled = resp, err, throttleOf(resp)
	close(c.done)
	c.Release()
}

// decode reads the answer that follows the correlation id. The result aliases body.
func (c *Call) decode(body []byte) (kmsg.Response, error) {
	req := c.req
	if c.produce != nil {
		req = &kmsg.ProduceRequest{Version: c.produce.version}
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if req.Key() == kmsg.ApiVersions.Int16() { // its header never has tags, so that any client understands it
		if len(body) >= 2 && binary.BigEndian.Uint16(body) == unsupportedVersion {
			resp.SetVersion(0)
		}
		return resp, resp.ReadFrom(body)
	}
	if req.IsFlexible() {
		var err error
		if body, err = skipTags(body); err != nil {
			return nil, err
		}
	}
	return resp, resp.ReadFrom(body)
}

// skipTags passes over the tagged fields of an answer's header.
func skipTags(b []byte) ([]byte, error) {
	r := kbin.Reader{Src: b}
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		r.Uvarint()
		r.Span(int(r.Uvarint()))
	}
	if !r.Ok() {
		return nil, kbin.ErrNotEnoughData
	}
	return r.Src, nil
}

func throttleOf(resp kmsg.Response) time.Duration {
	t, ok := resp.(kmsg.ThrottleResponse)
	if !ok {
		return 0
	}
	millis, _ := t.Throttle()
	return time.Duration(max(millis, 0)) * time.Millisecond
}

// requestedWait is how long a request itself allows the broker to wait.
func requestedWait(req kmsg.Request) time.Duration {
	if f, ok := req.(*kmsg.FetchRequest); ok {
		return time.Duration(f.MaxWaitMillis) * time.Millisecond
	}
	if t, ok := req.(kmsg.TimeoutRequest); ok {
		return time.Duration(max(t.Timeout(), 0)) * time.Millisecond
	}
	return 0
}
