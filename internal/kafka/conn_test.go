package kafka

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
	"mirrord/internal/recordbatch"
)

// rawRequest is the header of a request.
type rawRequest struct {
	key, version int16
	correlation  uint32
}

// scripted is a broker that answers ApiVersions and leaves every other request to a script.
func scripted(t *testing.T, script func(net.Conn, rawRequest)) (*Cluster, *Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serveScript(conn, script)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	host, port := "127.0.0.1", int32(l.Addr().(*net.TCPAddr).Port)
	c := openCluster(t, Config{
		Connection:     mirror.Connection{BootstrapServers: []string{l.Addr().String()}},
		RequestTimeout: 300 * time.Millisecond,
	})
	c.remember(Metadata{Brokers: map[int32]Broker{1: {ID: 1, Host: host, Port: port}}}, false)
	conn, err := c.Dial(testContext(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return c, conn
}

func serveScript(conn net.Conn, script func(net.Conn, rawRequest)) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		var head [4]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		r := rawRequest{int16(binary.BigEndian.Uint16(body)), int16(binary.BigEndian.Uint16(body[2:])), binary.BigEndian.Uint32(body[4:])}
		if r.key != kmsg.ApiVersions.Int16() {
			script(conn, r)
			continue
		}
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.Version = r.version
		for _, key := range []kmsg.Key{kmsg.Produce, kmsg.Fetch, kmsg.Metadata, kmsg.ApiVersions, kmsg.SASLHandshake, kmsg.SASLAuthenticate} {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MaxVersion = key.Int16(), key.Request().MaxVersion()
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
		writeAnswer(conn, r.correlation, resp.AppendTo(nil))
	}
}

func writeAnswer(w io.Writer, correlation uint32, body []byte) {
	out := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
	out = binary.BigEndian.AppendUint32(out, correlation)
	w.Write(append(out, body...))
}

func metadataRequest() *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	return req
}

func TestCallsAreAnsweredInOrder(t *testing.T) {
	fake, c, m := fakeWithTopic(t, 1)
	_ = fake
	conn := dialLeader(t, c, m, 0)
	var wg sync.WaitGroup
	for range 8 { // several goroutines, many requests on their way
		wg.Go(func() {
			calls := make([]*Call, 50)
			for i := range calls {
				calls[i] = conn.Send(metadataRequest())
			}
			for _, call := range calls {
				if resp, err := call.Response(); err != nil || len(resp.(*kmsg.MetadataResponse).Brokers) != 1 {
					t.Errorf("answer %v, %v", resp, err)
				}
				call.Release()
			}
		})
	}
	wg.Wait()
	if conn.Err() != nil {
		t.Error(conn.Err())
	}
}

func TestVersionsAreNegotiatedAndBounded(t *testing.T) {
	_, c, m := fakeWithTopic(t, 1)
	conn := dialLeader(t, c, m, 0)
	req := metadataRequest()
	req.Version = 9
	if resp, err := conn.Send(req).Response(); err != nil || resp.GetVersion() != 9 {
		t.Errorf("asked for at most 9: %v, %v", resp, err)
	}
	req = metadataRequest()
	if resp, err := conn.Send(req).Response(); err != nil || resp.GetVersion() != conn.MaxVersion(3) || resp.GetVersion() < 10 {
		t.Errorf("unbounded: version %d of %d, %v", resp.GetVersion(), conn.MaxVersion(3), err)
	}
	_, err := conn.Send(kmsg.NewPtrControlledShutdownRequest()).Response()
	if !UnsupportedVersion(err) || !errors.Is(err, ErrNotSent) || AfterAppendDoubt(err) {
		t.Errorf("not served: %v", err)
	}
	if conn.Err() != nil || conn.MaxVersion(-1) != -1 || conn.MaxVersion(30000) != -1 {
		t.Error("one refused request must not end the connection")
	}
}

func TestEveryCallEndsWithTheConnection(t *testing.T) {
	for name, script := range map[string]func(net.Conn, rawRequest){
		"closed":             func(c net.Conn, _ rawRequest) { c.Close() },
		"silent":             func(net.Conn, rawRequest) {},
		"wrong correlation":  func(c net.Conn, r rawRequest) { writeAnswer(c, r.correlation+7, make([]byte, 64)) },
		"garbage":            func(c net.Conn, r rawRequest) { writeAnswer(c, r.correlation, bytes.Repeat([]byte{0xff}, 64)) },
		"absurd length":      func(c net.Conn, _ rawRequest) { c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
		"negative length":    func(c net.Conn, _ rawRequest) { c.Write([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}) },
		"closed in mid-word": func(c net.Conn, r rawRequest) { c.Write([]byte{0, 0, 0, 90, 0, 0}); c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			_, conn := scripted(t, script)
			calls := []*Call{conn.Send(metadataRequest()), conn.SendProduce(onePartition(0, testBatch(1, recordbatch.Identity{})))}
			for i, call := range calls {
				_, err := call.Response()
				if err == nil || mirror.KindOf(err) != mirror.Unreachable || !errors.Is(err, ErrClosed) {
					t.Errorf("call %d: %v", i, err)
				}
				if doubt := AfterAppendDoubt(err); doubt == errors.Is(err, ErrNotSent) || i == 0 && !doubt {
					t.Errorf("call %d: doubt %v after %v", i, doubt, err)
				}
				call.Release()
			}
			<-conn.Ended()
			late := conn.Send(metadataRequest())
			if _, err := late.Response(); !errors.Is(err, ErrNotSent) || AfterAppendDoubt(err) || mirror.KindOf(err) != mirror.Unreachable {
				t.Errorf("after the end: %v", err)
			}
			late.Release()
		})
	}
}

func TestAnswerToNoRequest(t *testing.T) {
	_, conn := scripted(t, func(c net.Conn, r rawRequest) {
		resp := kmsg.NewPtrMetadataResponse()
		resp.Version = resp.MaxVersion()
		for range 2 {
			writeAnswer(c, r.correlation, append([]byte{0}, resp.AppendTo(nil)...))
		}
	})
	if _, err := conn.Send(metadataRequest()).Response(); err != nil {
		t.Fatal(err)
	}
	<-conn.Ended()
	if mirror.KindOf(conn.Err()) != mirror.Unreachable {
		t.Error(conn.Err())
	}
}

func TestSilenceIsNoticedInTime(t *testing.T) {
	_, conn := scripted(t, func(net.Conn, rawRequest) {})
	began := time.Now()
	req := newFetchRequest(FetchConfig{MaxWait: 200 * time.Millisecond})
	_, err := conn.Send(req).Response()
	if took := time.Since(began); took < 450*time.Millisecond || took > 2*time.Second {
		t.Errorf("took %v, want request timeout 300 ms + 200 ms of the request's own", took)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

// A quota delays the answers after it; that is no silence (KIP-219).
func TestThrottledConnectionIsNotSilent(t *testing.T) {
	first := true
	_, conn := scripted(t, func(c net.Conn, r rawRequest) {
		resp := kmsg.NewPtrMetadataResponse()
		resp.Version = resp.MaxVersion()
		if first {
			resp.ThrottleMillis = 700
		} else {
			<-time.After(600 * time.Millisecond) // beyond the request timeout
		}
		first = false
		writeAnswer(c, r.correlation, append([]byte{0}, resp.AppendTo(nil)...))
	})
	calls := []*Call{conn.Send(metadataRequest()), conn.Send(metadataRequest())}
	for i, call := range calls {
		if _, err := call.Response(); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	if got := calls[0].Throttled(); got != 700*time.Millisecond {
		t.Errorf("throttled %v", got)
	}
}

func TestDialGivesUpOnSilence(t *testing.T) {
	addr := silentListener(t)
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c := openCluster(t, Config{Connection: mirror.Connection{BootstrapServers: []string{addr}}, DialTimeout: 100 * time.Millisecond})
	c.remember(Metadata{Brokers: map[int32]Broker{1: {ID: 1, Host: "127.0.0.1", Port: int32(tcp.Port)}}}, false)
	began := time.Now()
	if _, err := c.Dial(testContext(t), 1); mirror.KindOf(err) != mirror.Unreachable || time.Since(began) > time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if _, err := c.Dial(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestCloseEndsCalls(t *testing.T) {
	_, conn := scripted(t, func(net.Conn, rawRequest) {})
	call := conn.Send(metadataRequest())
	conn.Close()
	conn.Close()
	if _, err := call.Response(); !errors.Is(err, ErrClosed) || !AfterAppendDoubt(err) {
		t.Error(err)
	}
}

func TestAbandonedCallFreesItsBuffer(t *testing.T) {
	answer := make(chan struct{})
	c, conn := scripted(t, func(nc net.Conn, r rawRequest) {
		<-answer
		resp := kmsg.NewPtrMetadataResponse()
		resp.Version = resp.MaxVersion()
		writeAnswer(nc, r.correlation, append([]byte{0}, resp.AppendTo(nil)...))
	})
	call := conn.Send(metadataRequest())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := call.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	call.Release()
	close(answer)
	eventually(t, "buffer back in the pool", func() bool { return c.pool.size() > 0 })
}

func TestBufferIsNotReusedWhileHeld(t *testing.T) {
	_, c, m := fakeWithTopic(t, 1)
	conn := dialLeader(t, c, m, 0)
	batch := testBatch(1000, recordbatch.Identity{ProducerID: 1 << 62})
	mustProduce(t, conn, 0, batch)
	session := NewFetchSession(conn, FetchConfig{MaxBytes: 1 << 20})
	session.Update(FetchPartition{Topic: "t", Partition: 0, LeaderEpoch: -1, LastFetchedEpoch: -1, MaxBytes: 1 << 20})
	call := session.Send()
	parts, err := session.Handle(call)
	if err != nil || len(parts) != 1 {
		t.Fatalf("%v, %v", parts, err)
	}
	kept := parts[0].Bytes
	want := bytes.Clone(kept)
	call.Retain() // one batch is queued
	call.Release()
	for range 20 {
		other := conn.Send(metadataRequest())
		other.Response()
		other.Release()
	}
	if !bytes.Equal(kept, want) {
		t.Fatal("bytes changed under their holder")
	}
	if call.Held() < len(kept) {
		t.Errorf("held %d of %d", call.Held(), len(kept))
	}
	call.Release()
	defer func() {
		if recover() == nil {
			t.Error("a release too many goes unnoticed")
		}
	}()
	call.Release()
}

func TestBuffersRetainABound(t *testing.T) {
	p := &buffers{retain: 1 << 20}
	for range 10 {
		p.put(make([]byte, 300<<10))
	}
	if p.size() > 1<<20 {
		t.Errorf("retains %d", p.size())
	}
	if b := p.get(250 << 10); cap(b) != 300<<10 || len(b) != 250<<10 {
		t.Errorf("get: len %d cap %d", len(b), cap(b))
	}
	if b := p.get(100); cap(b) > 64<<10 {
		t.Errorf("a short answer got %d bytes", cap(b))
	}
	for range 10 * maxFree {
		p.put(make([]byte, 1))
	}
	if len(p.free) > maxFree {
		t.Errorf("%d buffers", len(p.free))
	}
}

func (p *buffers) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// Whatever a peer sends, reading it ends, in an answer or an error, and asks for no absurd memory.
func FuzzAnswer(f *testing.F) {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 12
	f.Add(resp.AppendTo([]byte{0, 0, 0, 40, 0, 0, 0, 1, 0}), int16(12))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), int16(11))
	f.Add([]byte{0, 0, 0, 5, 0, 0, 0, 1, 0xff}, int16(13))
	f.Fuzz(func(t *testing.T, stream []byte, version int16) {
		in := bufio.NewReader(bytes.NewReader(stream))
		for _, req := range []kmsg.Request{
			&kmsg.FetchRequest{Version: version & 15}, &kmsg.ProduceRequest{Version: version & 7},
			&kmsg.ApiVersionsRequest{Version: version & 3}, &kmsg.ListOffsetsRequest{Version: version & 7},
		} {
			frame, err := readFrame(in, &buffers{})
			if err != nil {
				return
			}
			call := newCall(&buffers{}, 0)
			call.req = req
			if resp, err := call.decode(frame[4:]); err == nil && resp.GetVersion() > req.GetVersion() {
				t.Errorf("version %d of %d", resp.GetVersion(), req.GetVersion())
			}
		}
	})
}

func TestConnOverTLSAndSASL(t *testing.T) {
	certs := makeCerts(t)
	fake := startFake(t, kfake.TLS(certs.server(t)), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "mirrord", "hush"),
		kfake.SeedTopics(1, "t"))
	t.Setenv("KAFKA_TEST_SECRET", "hush")
	c := openCluster(t, Config{Connection: mirror.Connection{BootstrapServers: fake.ListenAddrs(), Security: mirror.Security{
		Protocol: "SASL_SSL", TLS: mirror.TLS{CAFile: certs.caFile},
		SASL: mirror.SASL{Mechanism: "SCRAM-SHA-512", Username: "mirrord", Password: "${env:KAFKA_TEST_SECRET}"},
	}}})
	m, err := c.Metadata(testContext(t), "t")
	if err != nil {
		t.Fatal(err)
	}
	conn := dialLeader(t, c, m, 0)
	if conn.tcp != nil {
		t.Fatal("not encrypted")
	}
	at := int64(0)
	for seq := range int32(20) {
		r := mustProduce(t, conn, 0, testBatch(100, recordbatch.Identity{ProducerID: 1 << 62, Sequence: 100 * seq}))
		if r.BaseOffset != at {
			t.Fatalf("base offset %d, want %d", r.BaseOffset, at)
		}
		at += 100
	}
}

// A session that is about to expire is renewed between two requests (KIP-368).
func TestLoginIsRenewedInTime(t *testing.T) {
	logins := 0
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		serveLogin(conn, &logins)
	}()
	t.Setenv("KAFKA_TEST_SECRET", "hush")
	c := openCluster(t, Config{Connection: mirror.Connection{BootstrapServers: []string{l.Addr().String()}, Security: mirror.Security{
		Protocol: "SASL_PLAINTEXT", SASL: mirror.SASL{Mechanism: "PLAIN", Username: "mirrord", Password: "${env:KAFKA_TEST_SECRET}"},
	}}})
	c.remember(Metadata{Brokers: map[int32]Broker{1: {ID: 1, Host: "127.0.0.1", Port: int32(l.Addr().(*net.TCPAddr).Port)}}}, false)
	conn, err := c.Dial(testContext(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := conn.Send(metadataRequest()).Response(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "85 % of the lifetime over", func() bool { return !time.Now().Before(conn.reauth) })
	if _, err := conn.Send(metadataRequest()).Response(); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	l.Close()
	<-done
	if logins != 2 {
		t.Errorf("%d logins, want 2", logins)
	}
}

// serveLogin answers logins with a lifetime of 300 ms, and requests for metadata.
func serveLogin(conn net.Conn, logins *int) {
	expires := time.Now()
	serveScript(conn, func(c net.Conn, r rawRequest) {
		req := kmsg.RequestForKey(r.key)
		req.SetVersion(r.version)
		resp := req.ResponseKind()
		var head []byte
		if req.IsFlexible() {
			head = []byte{0}
		}
		switch resp := resp.(type) {
		case *kmsg.SASLAuthenticateResponse:
			*logins++
			resp.SessionLifetimeMillis = 300
			expires = time.Now().Add(300 * time.Millisecond)
		case *kmsg.MetadataResponse:
			if time.Now().After(expires) {
				c.Close()
			}
		}
		writeAnswer(c, r.correlation, append(head, resp.AppendTo(nil)...))
	})
}
