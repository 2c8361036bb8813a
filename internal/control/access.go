package control

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
)

// token is the bearer token of the API. It is kept as a hash: comparing hashes takes the same time wherever they
// differ, whatever the lengths.
type token struct {
	path string
	hash atomic.Pointer[[sha256.Size]byte]
}

func (t *token) read() error {
	if t.path == "" {
		return nil
	}
	data, err := os.ReadFile(t.path)
	if err != nil {
		return fmt.Errorf("read token: %w", err)
	}
	secret := strings.TrimSpace(string(data))
	if secret == "" {
		return fmt.Errorf("read token: %s is empty", t.path)
	}
	hash := sha256.Sum256([]byte(secret))
	t.hash.Store(&hash)
	return nil
}

// admits reports whether a request bears the token.
func (t *token) admits(r *http.Request) bool {
	want := t.hash.Load()
	scheme, given, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if want == nil || !ok || !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	got := sha256.Sum256([]byte(strings.TrimSpace(given)))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

var (
	errNoToken   = errors.New("this needs the bearer token of http.token_file")
	errNoChanges = errors.New("changes over HTTP need http.token_file in the configuration")
	errHost      = errors.New("the Host header must be an address or localhost")
)

// reader lets those through who may read: anybody on this host, others with the token. Without a token, TLS alone must
// do: the configuration allows nothing else off loopback.
func (s *Server) reader(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.Loopback && !localName(r.Host) {
			writeError(w, http.StatusForbidden, errHost)
			return
		}
		if !s.cfg.Loopback && s.cfg.TokenFile != "" && !s.token.admits(r) {
			unauthorized(w, errNoToken)
			return
		}
		next(w, r)
	}
}

// writer lets only those through who bear the token.
func (s *Server) writer(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.cfg.TokenFile == "" {
			unauthorized(w, errNoChanges)
			return
		}
		if !s.token.admits(r) {
			unauthorized(w, errNoToken)
			return
		}
		next(w, r)
	}
}

func unauthorized(w http.ResponseWriter, err error) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="mirrord"`)
	writeError(w, http.StatusUnauthorized, err)
}

// localName refuses names of the outside world on a loopback listener: a web page could point its own name at
// 127.0.0.1 and read through the visitor's browser (DNS rebinding).
func localName(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	host = strings.Trim(host, "[]")
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host) != nil
}

// hardened sets the headers that keep a browser from doing more with our pages than showing them.
func hardened(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "+
			"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}
