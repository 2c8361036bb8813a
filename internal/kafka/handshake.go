package kafka

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const unsupportedVersion = 35 // how a broker answers a version of ApiVersions that it does not know, in version 0

// versions is what both sides know, per request kind. The zero value knows nothing but ApiVersions.
type versions struct {
	known    bool
	low, top [kmsg.MaxKey + 1]int16 // top −1: not served
}

func newVersions(resp *kmsg.ApiVersionsResponse) (v versions) {
	v.known = true
	for key := range v.top {
		v.top[key] = -1
	}
	for _, k := range resp.ApiKeys {
		ours := kmsg.RequestForKey(k.ApiKey)
		if ours == nil || min(ours.MaxVersion(), k.MaxVersion) < k.MinVersion {
			continue
		}
		v.low[k.ApiKey], v.top[k.ApiKey] = k.MinVersion, min(ours.MaxVersion(), k.MaxVersion)
	}
	return v
}

func (v *versions) max(key int16) int16 {
	if !v.known || key < 0 || int(key) >= len(v.top) {
		return -1
	}
	return v.top[key]
}

// min is the oldest version that the broker takes.
func (v *versions) min(key int16) int16 {
	if v.max(key) < 0 {
		return 0
	}
	return v.low[key]
}

// choose picks the newest version; one above 0 in the request is an upper bound.
func (v *versions) choose(req kmsg.Request) (int16, error) {
	key, wanted := req.Key(), req.GetVersion()
	if key == kmsg.ApiVersions.Int16() {
		return wanted, nil
	}
	top := v.max(key)
	if wanted > 0 {
		top = min(top, wanted)
	}
	if top < 0 || top < v.low[key] {
		return 0, fmt.Errorf("%s: %w", kmsg.NameForKey(key), errUnsupported)
	}
	return top, nil
}

// handshake asks for versions and logs in.
func (c *Conn) handshake() error {
	c.write.Lock()
	defer c.write.Unlock()
	for _, version := range []int16{3, 0} {
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = version, "mirrord", "1"
		resp, err := c.roundTrip(req)
		if err != nil {
			return err
		}
		answer := resp.(*kmsg.ApiVersionsResponse)
		if answer.ErrorCode == unsupportedVersion && version > 0 {
			continue
		}
		if err := kafkaError(answer.ErrorCode, nil); err != nil {
			return fmt.Errorf("ask for versions: %w", err)
		}
		c.versions = newVersions(answer)
		break
	}
	if !c.security.useSASL {
		return nil
	}
	return c.login()
}

// roundTrip sends a request and waits; c.write is held.
func (c *Conn) roundTrip(req kmsg.Request) (kmsg.Response, error) {
	call := newCall(c.pool, c.cfg.RequestTimeout)
	call.req = req
	c.send(call)
	resp, err := call.Response()
	if err != nil {
		call.Release()
	} // else the buffer is left to the garbage collector: the response may alias it
	return resp, err
}

// renewLogin logs in again shortly before the broker would end the session (KIP-368); c.write is held. Calls on their
// way are answered first: the broker reads requests in order.
func (c *Conn) renewLogin() error {
	if c.reauth.IsZero() || time.Now().Before(c.reauth) {
		return nil
	}
	if err := c.login(); err != nil {
		c.fail(fmt.Errorf("log in again: %w", err))
		return err
	}
	return nil
}

// login is SaslHandshake and SaslAuthenticate until the mechanism is done; c.write is held.
func (c *Conn) login() error {
	mechanism := c.security.mechanism()
	hello := kmsg.NewPtrSASLHandshakeRequest()
	hello.Mechanism = mechanism.Name()
	resp, err := c.roundTrip(hello)
	if err != nil {
		return fmt.Errorf("log in: %w", err)
	}
	if err := kafkaError(resp.(*kmsg.SASLHandshakeResponse).ErrorCode, nil); err != nil {
		return fmt.Errorf("log in by %s: %w", hello.Mechanism, err)
	}
	session, out, err := mechanism.Authenticate(c.life, c.broker.Address())
	for done := false; err == nil && (!done || len(out) > 0); {
		var in []byte
		if in, err = c.authenticate(out); err == nil {
			out = nil
			if !done {
				done, out, err = session.Challenge(in)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("log in by %s: %w", hello.Mechanism, err)
	}
	return nil
}

// authenticate is one step of a login. A session's lifetime counts from its last step; most of it is used.
func (c *Conn) authenticate(out []byte) ([]byte, error) {
	asked := time.Now()
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.SASLAuthBytes = out
	resp, err := c.roundTrip(req)
	if err != nil {
		return nil, err
	}
	answer, ok := resp.(*kmsg.SASLAuthenticateResponse)
	if !ok {
		return nil, errors.New("not an answer to SaslAuthenticate")
	}
	c.reauth = time.Time{}
	if millis := min(answer.SessionLifetimeMillis, int64(365*24*time.Hour/time.Millisecond)); millis > 0 {
		c.reauth = asked.Add(time.Duration(millis) * time.Millisecond * 17 / 20)
	}
	return answer.SASLAuthBytes, kafkaError(answer.ErrorCode, answer.ErrorMessage)
}
