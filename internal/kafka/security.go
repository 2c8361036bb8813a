package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"mirrord/internal/mirror"
)

const keepAlive = 10 * time.Second // idle time, interval; three probes lost end a connection

// security makes connections. It holds references to secrets, never secrets.
type security struct {
	mirror.Security
	useTLS, useSASL bool
	dialTimeout     time.Duration

	mu    sync.Mutex
	token *oauth2.Token // OAUTHBEARER: the last one, until shortly before it expires
}

func newSecurity(cfg Config) (*security, error) {
	s := &security{Security: cfg.Connection.Security, dialTimeout: cfg.DialTimeout}
	switch strings.ToUpper(s.Protocol) {
	case "", "PLAINTEXT":
	case "SSL":
		s.useTLS = true
	case "SASL_PLAINTEXT":
		s.useSASL = true
	case "SASL_SSL":
		s.useTLS, s.useSASL = true, true
	default:
		return nil, mirror.Errorf(mirror.Refused, "security protocol %q is unknown", s.Protocol)
	}
	if s.useSASL && s.mechanism() == nil {
		return nil, mirror.Errorf(mirror.Refused, "SASL mechanism %q is unknown", s.SASL.Mechanism)
	}
	return s, nil
}

// mechanism is nil where there is no login. Secrets are resolved at each one.
func (s *security) mechanism() sasl.Mechanism {
	if !s.useSASL {
		return nil
	}
	switch s.SASL.Mechanism {
	case "PLAIN":
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			pass, err := resolve(s.SASL.Password)
			return plain.Auth{User: s.SASL.Username, Pass: pass}, err
		})
	case "SCRAM-SHA-256":
		return scram.Sha256(s.scramAuth)
	case "SCRAM-SHA-512":
		return scram.Sha512(s.scramAuth)
	case "OAUTHBEARER":
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			token, err := s.bearer(ctx)
			return oauth.Auth{Token: token}, err
		})
	}
	return nil
}

func (s *security) scramAuth(context.Context) (scram.Auth, error) {
	pass, err := resolve(s.SASL.Password)
	return scram.Auth{User: s.SASL.Username, Pass: pass}, err
}

// bearer gives a token that is good for a while yet, or asks for a new one (client credentials grant, RFC 6749 §4.4).
func (s *security) bearer(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token != nil && (s.token.Expiry.IsZero() || time.Until(s.token.Expiry) > time.Minute) {
		return s.token.AccessToken, nil
	}
	secret, err := resolve(s.SASL.ClientSecret)
	if err != nil {
		return "", err
	}
	cc := clientcredentials.Config{ClientID: s.SASL.ClientID, ClientSecret: secret, TokenURL: s.SASL.TokenEndpoint}
	if s.SASL.Scope != "" {
		cc.Scopes = strings.Fields(s.SASL.Scope)
	}
	ctx, cancel := context.WithTimeout(ctx, s.dialTimeout)
	defer cancel()
	token, err := cc.Token(ctx)
	if err != nil {
		return "", tokenError(s.SASL.TokenEndpoint, err)
	}
	s.token = token
	return token.AccessToken, nil
}

// tokenError keeps the endpoint's answer out of the text: it may repeat what was sent.
func tokenError(endpoint string, err error) error {
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		if e.ErrorCode != "" {
			return fmt.Errorf("ask %s for a token: %s (HTTP %d)", endpoint, e.ErrorCode, e.Response.StatusCode)
		}
		return fmt.Errorf("ask %s for a token: HTTP %d", endpoint, e.Response.StatusCode)
	}
	return fmt.Errorf("ask %s for a token: %w", endpoint, err)
}

// tlsConfig reads the files anew, so that renewed certificates need no restart. While a renewal is half done key and
// certificate do not match: that fails this dial, and the next one finds both.
func (s *security) tlsConfig(address string) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if s.TLS.ServerName != "" {
		cfg.ServerName = s.TLS.ServerName
	}
	if s.TLS.CAFile != "" {
		if cfg.RootCAs, err = readPool(s.TLS.CAFile); err != nil {
			return nil, err
		}
	}
	if s.TLS.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(s.TLS.CertFile, s.TLS.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("load client certificate: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	if s.TLS.SkipHostname {
		verifyChainOnly(cfg)
	}
	return cfg, nil
}

func readPool(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load CA certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("load CA certificates: no certificate in %s", path)
	}
	return pool, nil
}

// verifyChainOnly checks the server's certificate against the CA, but not its name.
func verifyChainOnly(cfg *tls.Config) {
	roots := cfg.RootCAs
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
		for _, cert := range state.PeerCertificates[1:] {
			opts.Intermediates.AddCert(cert)
		}
		_, err := state.PeerCertificates[0].Verify(opts)
		return err
	}
}

// dial connects, with TLS where configured. The connection does not wait longer than the dial timeout for its first
// answer.
func (s *security) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return s.dialTelling(ctx, network, address, func(error) {})
}

// dialTelling is dial, and tells once whether the first answer came.
func (s *security) dialTelling(ctx context.Context, network, address string, told func(error)) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.dialTimeout, errDialTimeout)
	defer cancel()
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: keepAlive, Count: 3}}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if s.useTLS {
		secure, err := s.encrypt(ctx, conn, address)
		if err != nil {
			_ = conn.Close()
			return nil, &net.OpError{Op: "dial", Net: network, Addr: conn.RemoteAddr(), Err: err}
		}
		conn = secure
	}
	first := func(err error) { told(s.firstReadError(err)) }
	return &impatient{Conn: conn, until: time.Now().Add(s.dialTimeout), told: first, plain: !s.useTLS}, nil
}

func (s *security) encrypt(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	cfg, err := s.tlsConfig(address)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, handshakeError(err)
	}
	return secure, nil
}

var errDialTimeout = errors.New("no connection within the dial timeout")

// impatient is a connection that ends if the server says nothing until a moment, whatever deadlines are set. After the
// first byte it is like any other.
type impatient struct {
	net.Conn
	until time.Time
	told  func(error) // called once: with the first byte, or with why there was none
	plain bool        // without TLS: an answer in TLS is an error

	mu       sync.Mutex // guards what follows
	heard    bool
	deadline time.Time // as asked for
}

// SetReadDeadline keeps the earlier moment before the first byte.
func (c *impatient) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	if !c.heard && (t.IsZero() || t.After(c.until)) {
		t = c.until
	}
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (c *impatient) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *impatient) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n == 0 && err == nil {
		return 0, nil
	}
	return c.hear(b[:n], err)
}

// hear takes note of the first answer and gives what Read is to return.
func (c *impatient) hear(answer []byte, err error) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard {
		return len(answer), err
	}
	if c.plain && isAlert(answer) {
		answer, err = nil, answersInTLS(c.RemoteAddr())
	}
	c.heard = true
	if err == nil {
		_ = c.Conn.SetReadDeadline(c.deadline)
	}
	if !errors.Is(err, net.ErrClosed) { // closed by ourselves says nothing about the other side
		c.told(err)
	}
	return len(answer), err
}
