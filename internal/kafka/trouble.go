package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"

	"mirrord/internal/mirror"
)

// Two ends of a connection that do not agree on TLS see nothing but its end, or silence. What that may mean is said.
const (
	perhapsPlain = "TLS could not begin: the listener may not speak it (security.protocol PLAINTEXT or SASL_PLAINTEXT)"
	perhapsTLS   = "the connection ended before anything was answered: the listener may want TLS (security.protocol SSL or SASL_SSL)"
)

// answersInTLS is the error for an answer to plain bytes that is a TLS alert. Nothing else that Kafka says begins like that: it
// would be an answer of 336 MiB.
func answersInTLS(from net.Addr) error {
	return mirror.Errorf(mirror.Unreachable, "%s: the listener speaks TLS: set security.protocol to SSL or SASL_SSL", from)
}

const (
	tlsAlert = 0x15
	tlsMajor = 0x03
)

func isAlert(b []byte) bool { return len(b) >= 2 && b[0] == tlsAlert && b[1] == tlsMajor }

// hungUp reports whether the other side just ended the connection.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// handshakeError says what may be behind a TLS handshake that failed.
func handshakeError(err error) error {
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || hungUp(err) || errors.Is(err, context.DeadlineExceeded) {
		return said(perhapsPlain, err)
	}
	return fmt.Errorf("TLS: %w", err)
}

// firstReadError says what may be behind a connection that ended before the first answer.
func (s *security) firstReadError(err error) error {
	if hungUp(err) && !s.useTLS {
		return said(perhapsTLS, err)
	}
	return err
}

// saying is an error under a text that tells more than its own.
type saying struct {
	text string
	err  error
}

func said(text string, err error) error { return &saying{text, err} }

func (s *saying) Error() string { return s.text }
func (s *saying) Unwrap() error { return s.err }

// ended is Explain for the error of a request, which may have failed for another reason than the end of its wait.
func (c *Cluster) ended(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return c.Explain(err)
	}
	return err
}

// Explain adds to the error of a wait in vain why none of the configured addresses answers, as far as that is known.
func (c *Cluster) Explain(err error) error {
	trouble := c.bootstrap.trouble()
	if trouble == "" || strings.Contains(err.Error(), trouble) {
		return err
	}
	return fmt.Errorf("%w: %s", err, trouble)
}

// trouble lists why the addresses do not answer; empty: one does, or nothing is known.
func (b *bootstrap) trouble() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.good != "" {
		return ""
	}
	var out []string
	for _, address := range b.addresses {
		if f, ok := b.failed[address]; ok {
			text := f.err.Error()
			if !strings.Contains(text, address) {
				text = address + ": " + text
			}
			out = append(out, text)
		}
	}
	return strings.Join(slices.Compact(out), "; ")
}
