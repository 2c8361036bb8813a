package control

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// ServerConfig says where the HTTP server listens and who may do what.
type ServerConfig struct {
	Listen    string
	Loopback  bool   // only programs of this host can connect: reading is free
	TokenFile string // empty: nothing can be changed over HTTP
	// CertFile and KeyFile: TLS. ClientCAFile: clients must show a certificate signed by it.
	CertFile, KeyFile, ClientCAFile string
}

// Readiness is what /readyz says.
type Readiness struct {
	Ready        bool      `json:"ready"`
	WaitingFor   string    `json:"waitingFor,omitempty"` // what is missing, for people
	Instance     string    `json:"instance"`
	Version      string    `json:"version"`
	Joined       bool      `json:"joined"`
	ShardsOwned  int       `json:"shardsOwned"`
	ShardsLoaded int       `json:"shardsLoaded"` // of the owned ones
	Stopped      []string  `json:"shardsStopped,omitempty"`
	Destination  Contact   `json:"destination"`
	Sources      []Contact `json:"sources"` // told, but no reason to be unready
}

// Contact is what came of asking a cluster.
type Contact struct {
	Mirror string `json:"mirror,omitempty"` // of a source
	Up     bool   `json:"up"`
	Error  string `json:"error,omitempty"`
}

// ServerDeps is what the server shows and where it passes requests to. All functions must be safe for concurrent use
// and answer within a second or two, whatever the clusters do.
type ServerDeps struct {
	Ready func(ctx context.Context) Readiness
	View  func() *statestore.View // nil: the state topic was not reached yet
	Read  func(ctx context.Context, req mirror.ReadMirrorStatesRequest) mirror.ReadMirrorStatesResponse
	Write func(ctx context.Context, req mirror.WriteMirrorStatesRequest) mirror.WriteMirrorStatesResponse
	// Submit puts a command into __mirror_commands; it returns once the destination has it.
	Submit func(ctx context.Context, cmd mirror.Command) error

	Destination *kafka.Cluster // nil: nothing is asked of it

	Events   *Events
	History  *History
	Gatherer prometheus.Gatherer
	Log      *slog.Logger
}

// Server is the HTTP side of the daemon: metrics, health, API and console.
type Server struct {
	cfg   ServerConfig
	deps  ServerDeps
	token token
	ln    net.Listener
	http  *http.Server
}

// OpenServer reads the token and binds the address, so that a wrong one is known before anything else starts.
func OpenServer(cfg ServerConfig, deps ServerDeps) (*Server, error) {
	s := &Server{cfg: cfg, deps: deps, token: token{path: cfg.TokenFile}}
	if err := s.token.read(); err != nil {
		return nil, fmt.Errorf("open http server: %w", err)
	}
	tlsConfig, err := serverTLS(cfg)
	if err != nil {
		return nil, fmt.Errorf("open http server: %w", err)
	}
	if s.ln, err = net.Listen("tcp", cfg.Listen); err != nil {
		return nil, fmt.Errorf("open http server: %w", err)
	}
	if tlsConfig != nil {
		s.ln = tls.NewListener(s.ln, tlsConfig)
	}
	s.http = &http.Server{
		Handler: s.handler(),
		// A slow or silent client must not hold a connection for ever, nor a large header the memory.
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second, WriteTimeout: 60 * time.Second,
		IdleTimeout: 60 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(deps.Log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// Addr is the address that is listened on.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Run serves until ctx ends, then lets running requests finish for at most a second.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(s.ln) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve http: %w", err)
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := s.http.Shutdown(bounded); err != nil {
		s.http.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve http: %w", err)
	}
	return ctx.Err()
}

// Close gives up the address of a server that was never run.
func (s *Server) Close() error {
	if err := s.http.Close(); err != nil {
		return err
	}
	if err := s.ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Reload reads the token again. On error the old one stays valid.
func (s *Server) Reload() error { return s.token.read() }

// serverTLS makes the listener's TLS; nil: none. The certificate is read anew for each connection, so that a renewed
// one needs no restart; while the files do not fit together, the last good one serves.
func serverTLS(cfg ServerConfig) (*tls.Config, error) {
	if cfg.CertFile == "" {
		return nil, nil
	}
	first, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, err
	}
	var last atomic.Pointer[tls.Certificate]
	last.Store(&first)
	load := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if cert, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile); err == nil {
			last.Store(&cert)
		}
		return last.Load(), nil
	}
	out := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: load,
	}
	if cfg.ClientCAFile != "" {
		pem, err := os.ReadFile(cfg.ClientCAFile)
		if err != nil {
			return nil, err
		}
		out.ClientCAs, out.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !out.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no PEM certificate", cfg.ClientCAFile)
		}
	}
	return out, nil
}
