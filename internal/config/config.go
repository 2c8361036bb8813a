package config

import (
	"net"
	"time"

	"mirrord/internal/mirror"
)

// Config is the whole file. The zero value is not usable: begin with Default.
type Config struct {
	File string // absolute path it was read from

	Destination mirror.Connection
	GroupID     string // instances with the same one share the work
	InstanceID  string // static membership; empty: none
	DataDir     string // exports only

	SessionTimeout          time.Duration
	MetadataRefreshInterval time.Duration
	GroupSyncInterval       time.Duration

	StateTopic  StateTopic
	Retry       Retry
	Fetch       Fetch
	MemoryLimit int64 // bytes of record data held at once
	Throttle    int64 // bytes/s written to the destination, 0: none

	HTTP    HTTP
	Log     Log
	Mirrors []mirror.Definition
}

// StateTopic says how __mirror_state and __mirror_commands are created.
type StateTopic struct {
	NumPartitions     int32
	ReplicationFactor int16
}

// Retry is the schedule of FAILED partitions.
type Retry struct {
	InitialBackoff, MaxBackoff time.Duration
	MaxAttempts                int // 0: no retry
}

// Fetch tunes reading from the source. Sizes are bytes.
type Fetch struct {
	Threads                               int // per mirror and source broker
	MaxWait                               time.Duration
	MinBytes, MaxBytes, PartitionMaxBytes int64
}

// HTTP says where metrics, health, API and console are served. Paths are absolute; empty: none.
type HTTP struct {
	Listen    string
	TokenFile string
	TLS       HTTPTLS
}

// HTTPTLS holds the PEM files of the listener. With ClientCAFile, clients must show a certificate signed by it.
type HTTPTLS struct{ CertFile, KeyFile, ClientCAFile string }

// Loopback reports whether only programs of this host can connect.
func (h HTTP) Loopback() bool {
	host, _, err := net.SplitHostPort(h.Listen)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Log says what is logged and how.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // auto, text or json
}

// Default holds the value of every key that a file leaves out. Only destination.bootstrap_servers has none.
func Default() Config {
	return Config{
		GroupID: "mirrord", DataDir: "/var/lib/mirrord",
		SessionTimeout: 10 * time.Second, MetadataRefreshInterval: 30 * time.Second, GroupSyncInterval: 30 * time.Second,
		StateTopic:  StateTopic{NumPartitions: 50, ReplicationFactor: 3},
		Retry:       Retry{InitialBackoff: 100 * time.Millisecond, MaxBackoff: 5 * time.Minute, MaxAttempts: 20},
		Fetch:       Fetch{Threads: 1, MaxWait: 500 * time.Millisecond, MinBytes: 1, MaxBytes: 50 * MiB, PartitionMaxBytes: 8 * MiB},
		MemoryLimit: 512 * MiB,
		HTTP:        HTTP{Listen: "127.0.0.1:9464"},
		Log:         Log{Level: "info", Format: "auto"},
	}
}
