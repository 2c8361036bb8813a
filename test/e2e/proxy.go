package e2e

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"
)

// Kafka API keys whose answers tests swallow.
const (
	keyProduce           = 0
	keyFetch             = 1
	keyListOffsets       = 2
	keyDeleteRecords     = 21
	keyInitProducerID    = 22
	keyEndTxn            = 26
	keyWriteTxnMarkers   = 27
	keyTxnOffsetCommit   = 28
	keyDescribeProducers = 61
)

// Proxy stands before one broker and hurts its connections on request. It understands Kafka's framing, so a fault hits
// whole requests and answers. It works on plaintext listeners.
type Proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	latency time.Duration
	refuse  bool
	silent  bool          // bytes are swallowed, connections stay open
	swallow map[int16]int // answers still to be lost, by API key
	counts  map[int16]int // requests seen, by API key
	dialled int           // connections that clients have opened
	pairs   map[*pair]struct{}
	gates   map[int16]gate
	waiting int                           // requests before a gate
	watch   func(key int16, frame []byte) // sees each request
	opaque  bool                          // bytes pass unread: for listeners with TLS
}

// gate holds requests until it opens.
type gate struct {
	open chan struct{}
	some func(frame []byte) bool // nil: all
}

// pair is one proxied connection.
type pair struct {
	client, broker net.Conn
	mu             sync.Mutex
	lost           map[int32]bool // correlation ids whose answers are lost
}

func (c *pair) close() {
	c.client.Close()
	c.broker.Close()
}

func newProxy(listen, target string) (*Proxy, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		listener: l, target: target, swallow: map[int16]int{}, counts: map[int16]int{}, pairs: map[*pair]struct{}{},
		gates: map[int16]gate{},
	}
	go p.accept()
	return p, nil
}

// Addr is where clients connect.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Latency delays each frame in each direction.
func (p *Proxy) Latency(d time.Duration) { p.locked(func() { p.latency = d }) }

// Cut closes all connections and refuses new ones until Heal.
func (p *Proxy) Cut() { p.locked(func() { p.refuse = true; p.closePairs() }) }

// Reset closes all connections; new ones are welcome.
func (p *Proxy) Reset() { p.locked(p.closePairs) }

// BlackHole keeps connections open and delivers nothing any more until Heal, which closes those that lost bytes.
func (p *Proxy) BlackHole() { p.locked(func() { p.silent = true }) }

// Aim leads to another broker from now on.
func (p *Proxy) Aim(target string) { p.locked(func() { p.target = target; p.closePairs() }) }

// Swallow lets the next n requests of an API key through, then closes the connection instead of answering.
func (p *Proxy) Swallow(key int16, n int) { p.locked(func() { p.swallow[key] += n }) }

// Pending is how many answers of an API key are still to be swallowed.
func (p *Proxy) Pending(key int16) (n int) {
	p.locked(func() { n = p.swallow[key] })
	return n
}

// Requests is how many requests of an API key have passed.
func (p *Proxy) Requests(key int16) (n int) {
	p.locked(func() { n = p.counts[key] })
	return n
}

// Connections is how many connections clients have opened, those that were refused included.
func (p *Proxy) Connections() (n int) {
	p.locked(func() { n = p.dialled })
	return n
}

// Hold keeps requests of an API key, and what follows them on their connections, from the broker until Heal.
func (p *Proxy) Hold(key int16) { p.HoldSome(key, nil) }

// HoldSome is Hold for those requests only that some selects.
func (p *Proxy) HoldSome(key int16, some func(frame []byte) bool) {
	p.locked(func() { p.gates[key] = gate{make(chan struct{}), some} })
}

// ofData reports whether a Produce request (v9 or newer) has no transactional id: the state writer's has one.
func ofData(frame []byte) bool {
	client := int(int16(binary.BigEndian.Uint16(frame[12:])))
	return frame[12+2+max(0, client)+1] == 0
}

// Held is how many requests wait now.
func (p *Proxy) Held() (n int) {
	p.locked(func() { n = p.waiting })
	return n
}

// Watch shows each request to f, which must not block; nil: no longer.
func (p *Proxy) Watch(f func(key int16, frame []byte)) { p.locked(func() { p.watch = f }) }

// Opaque lets bytes pass unread from now on: faults of whole connections work, those of requests do not.
func (p *Proxy) Opaque() { p.locked(func() { p.opaque = true }) }

// Heal ends all faults.
func (p *Proxy) Heal() {
	p.locked(func() {
		for key, gate := range p.gates {
			close(gate.open)
			delete(p.gates, key)
		}
		if p.silent {
			p.closePairs()
		}
		p.latency, p.refuse, p.silent = 0, false, false
		clear(p.swallow)
	})
}

func (p *Proxy) close() {
	p.listener.Close()
	p.Heal()
	p.Cut()
}

func (p *Proxy) locked(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *Proxy) closePairs() {
	for c := range p.pairs {
		c.close()
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.locked(func() { p.dialled++ })
		go p.serve(client)
	}
}

func (p *Proxy) serve(client net.Conn) {
	var target string
	p.locked(func() { target = p.target })
	broker, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		client.Close()
		return
	}
	c := &pair{client: client, broker: broker, lost: map[int32]bool{}}
	defer c.close()
	refused := false
	p.locked(func() {
		refused = p.refuse
		if !refused {
			p.pairs[c] = struct{}{}
		}
	})
	if refused {
		return
	}
	defer p.locked(func() { delete(p.pairs, c) })
	var both sync.WaitGroup
	both.Go(func() { p.pump(c, c.client, c.broker, p.onRequest) })
	both.Go(func() { p.pump(c, c.broker, c.client, p.onAnswer) })
	both.Wait()
}

type delayed struct {
	frame []byte
	due   time.Time
}

// pump moves frames one way until either side ends. look may refuse a frame, which ends the connection.
func (p *Proxy) pump(c *pair, from, to net.Conn, look func(*pair, []byte) bool) {
	frames := make(chan delayed, 1024)
	go func() {
		defer close(frames)
		for {
			frame, err := p.read(from)
			if err != nil || !look(c, frame) {
				c.close()
				return
			}
			p.mu.Lock()
			due := time.Now().Add(p.latency)
			p.mu.Unlock()
			frames <- delayed{frame, due}
		}
	}()
	for d := range frames {
		time.Sleep(time.Until(d.due))
		silent := false
		p.locked(func() { silent = p.silent })
		if silent {
			continue
		}
		if _, err := to.Write(d.frame); err != nil {
			c.close()
		}
	}
}

// read reads a frame, or what there is where frames cannot be told.
func (p *Proxy) read(from net.Conn) ([]byte, error) {
	opaque := false
	p.locked(func() { opaque = p.opaque })
	if !opaque {
		return readFrame(from)
	}
	some := make([]byte, 64<<10)
	n, err := from.Read(some)
	if n > 0 {
		err = nil // it comes again
	}
	return some[:n], err
}

func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, 4+int(binary.BigEndian.Uint32(size[:])&0x7fffffff))
	copy(frame, size[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

func (p *Proxy) onRequest(c *pair, frame []byte) bool {
	if len(frame) < 12 {
		return true
	}
	key, id := int16(binary.BigEndian.Uint16(frame[4:])), int32(binary.BigEndian.Uint32(frame[8:]))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.opaque {
		return true
	}
	p.wait(key, frame)
	if p.watch != nil {
		p.watch(key, frame)
	}
	p.counts[key]++
	if p.swallow[key] > 0 {
		p.swallow[key]--
		c.mu.Lock()
		c.lost[id] = true
		c.mu.Unlock()
	}
	return true
}

// wait holds a request before its gate. It gives the lock away meanwhile.
func (p *Proxy) wait(key int16, frame []byte) {
	gate, ok := p.gates[key]
	if !ok || gate.some != nil && !gate.some(frame) {
		return
	}
	p.waiting++
	p.mu.Unlock()
	<-gate.open
	p.mu.Lock()
	p.waiting--
}

func (p *Proxy) onAnswer(c *pair, frame []byte) bool {
	if len(frame) < 8 || p.unread() {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.lost[int32(binary.BigEndian.Uint32(frame[4:]))]
}

func (p *Proxy) unread() (opaque bool) {
	p.locked(func() { opaque = p.opaque })
	return opaque
}
