package kafka

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mirrord/internal/mirror"
)

// Defaults of a Config.
const (
	DefaultRequestTimeout = 10 * time.Second
	DefaultDialTimeout    = 5 * time.Second
)

// Config says which cluster is meant and how to reach it.
type Config struct {
	Connection mirror.Connection
	ClientID   string // empty: "mirrord"
	// RequestTimeout bounds the wait for an answer, on top of the time that the request itself asks for.
	RequestTimeout time.Duration
	// DialTimeout bounds connecting and, counted anew, each step until the first answer: a server that accepts and says
	// nothing costs no more than a dead one.
	DialTimeout time.Duration
	Logger      *slog.Logger          // nil: silent
	Registerer  prometheus.Registerer // nil: no client metrics; must tell clusters apart by its labels
}

func (c Config) withDefaults() Config {
	if c.ClientID == "" {
		c.ClientID = "mirrord"
	}
	if c.RequestTimeout <= 0 {
		c.RequestTimeout = DefaultRequestTimeout
	}
	if c.DialTimeout <= 0 {
		c.DialTimeout = DefaultDialTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
