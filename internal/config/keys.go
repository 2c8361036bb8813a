package config

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"mirrord/internal/mirror"
)

// settings is the table of all keys outside of mirrors, in the order of the shipped file.
func settings() []setting[Config] {
	return slices.Concat(
		below("destination", func(c *Config) *mirror.Connection { return &c.Destination }, connectionSettings()),
		groupSettings(), timingSettings(), limitSettings(), serviceSettings())
}

func connectionSettings() []setting[mirror.Connection] {
	return append([]setting[mirror.Connection]{
		field("bootstrap_servers", "brokers to ask first, as host:port", texts,
			func(c *mirror.Connection) *[]string { return &c.BootstrapServers }, rule[[]string]{"addresses with a port", checkAddresses}),
	}, below("security", func(c *mirror.Connection) *mirror.Security { return &c.Security }, securitySettings())...)
}

func groupSettings() []setting[Config] {
	return []setting[Config]{
		field("group_id", "instances with the same id share the work; a destination knows one", text,
			func(c *Config) *string { return &c.GroupID }, nonEmpty),
		field("session_timeout", "a dead instance's work moves within this + 5 s; within the brokers' group.min/max.session.timeout.ms", duration,
			func(c *Config) *time.Duration { return &c.SessionTimeout }, between(time.Second, 30*time.Minute)),
		field("instance_id", "static membership: a restart within session_timeout moves no work; unique per instance", text,
			func(c *Config) *string { return &c.InstanceID }, rule[string]{}),
		field("state_topic.num_partitions", "shards of the work, fixed when the topic is created", number[int32](),
			func(c *Config) *int32 { return &c.StateTopic.NumPartitions }, within[int32](1, 10_000)),
		field("state_topic.replication_factor", "copies of the state topic; needs as many brokers", number[int16](),
			func(c *Config) *int16 { return &c.StateTopic.ReplicationFactor }, within[int16](1, 100)),
	}
}

func timingSettings() []setting[Config] {
	return []setting[Config]{
		field("metadata_refresh_interval", "topics, partitions, settings and ACLs are compared this often", duration,
			func(c *Config) *time.Duration { return &c.MetadataRefreshInterval }, between(100*time.Millisecond, 24*time.Hour)),
		field("group_sync_interval", "committed offsets are carried over this often", duration,
			func(c *Config) *time.Duration { return &c.GroupSyncInterval }, between(time.Second, 24*time.Hour)),
		field("retry.initial_backoff", "pause before the first retry of a failed partition; doubles each time, ±20 %", duration,
			func(c *Config) *time.Duration { return &c.Retry.InitialBackoff }, between(time.Millisecond, 24*time.Hour)),
		field("retry.max_backoff", "longest pause between retries", duration,
			func(c *Config) *time.Duration { return &c.Retry.MaxBackoff }, between(time.Millisecond, 24*time.Hour)),
		field("retry.max_attempts", "then it waits for recover; 0: no retry; an unreachable source is retried for ever", number[int](),
			func(c *Config) *int { return &c.Retry.MaxAttempts }, within(0, 30_000)),
	}
}

func limitSettings() []setting[Config] {
	const most = 2147483647 // int32 in the protocol
	return []setting[Config]{
		field("fetch.threads", "fetch loops per mirror and source broker", number[int](),
			func(c *Config) *int { return &c.Fetch.Threads }, within(1, 64)),
		field("fetch.max_wait", "a source broker waits this long for min_bytes", duration,
			func(c *Config) *time.Duration { return &c.Fetch.MaxWait }, between(time.Millisecond, 30*time.Second)),
		field("fetch.min_bytes", "a source broker answers when it has this much", size,
			func(c *Config) *int64 { return &c.Fetch.MinBytes }, sizes(0, most)),
		field("fetch.max_bytes", "most bytes of one answer", size,
			func(c *Config) *int64 { return &c.Fetch.MaxBytes }, sizes(KiB, most)),
		field("fetch.partition_max_bytes", "most bytes of one partition in one answer", size,
			func(c *Config) *int64 { return &c.Fetch.PartitionMaxBytes }, sizes(KiB, most)),
		field("memory_limit", "record data held at once, all mirrors together", size,
			func(c *Config) *int64 { return &c.MemoryLimit }, sizes(16*MiB, 1<<50)),
		field("throttle", "bytes/s written to the destination, all mirrors together; 0: no limit", size,
			func(c *Config) *int64 { return &c.Throttle }, sizes(0, 1<<50)),
	}
}

func serviceSettings() []setting[Config] {
	return []setting[Config]{
		field("http.listen", "metrics, health, API and console; other than loopback needs token_file or tls", text,
			func(c *Config) *string { return &c.HTTP.Listen }, rule[string]{"host:port", checkListen}),
		field("http.token_file", "bearer token for changes, and for reading from other hosts", filledFile,
			func(c *Config) *string { return &c.HTTP.TokenFile }, rule[string]{}),
		field("http.tls.cert_file", "PEM certificate of the listener", certificates,
			func(c *Config) *string { return &c.HTTP.TLS.CertFile }, rule[string]{}),
		field("http.tls.key_file", "PEM key of the listener", privateKey,
			func(c *Config) *string { return &c.HTTP.TLS.KeyFile }, rule[string]{}),
		field("http.tls.client_ca_file", "clients must show a certificate signed by this CA (PEM)", certificates,
			func(c *Config) *string { return &c.HTTP.TLS.ClientCAFile }, rule[string]{}),
		field("log.level", "least level that is logged", text,
			func(c *Config) *string { return &c.Log.Level }, oneOf("debug", "info", "warn", "error")),
		field("log.format", "auto: coloured on a terminal, plain text elsewhere", text,
			func(c *Config) *string { return &c.Log.Format }, oneOf("auto", "text", "json")),
		field("data_dir", "exports of recover --reseed only; state lives in Kafka", directory,
			func(c *Config) *string { return &c.DataDir }, nonEmpty),
	}
}

// nonEmpty does not begin with "must be": what was got instead needs no telling.
var nonEmpty = rule[string]{"not empty", func(s string) error {
	if s == "" {
		return errors.New("must not be empty")
	}
	return nil
}}

func between(least, most time.Duration) rule[time.Duration] {
	return must(formatDuration(least)+" to "+formatDuration(most), func(d time.Duration) bool { return d >= least && d <= most })
}

func within[V integer](least, most V) rule[V] {
	return must(fmt.Sprintf("%d to %d", least, most), func(v V) bool { return v >= least && v <= most })
}

func sizes(least, most int64) rule[int64] {
	text := "at least " + FormatSize(least)
	if most < 1<<50 {
		text = FormatSize(least) + " to " + FormatSize(most)
	}
	return must(text, func(n int64) bool { return n >= least && n <= most })
}

func checkAddresses(addresses []string) error {
	var errs []error
	for i, a := range addresses {
		if err := checkAddress(a); err != nil {
			errs = append(errs, &itemError{i, err})
		}
	}
	return errors.Join(errs...)
}

func checkAddress(a string) error {
	host, port, err := net.SplitHostPort(a)
	if err != nil {
		return fmt.Errorf("%q is not host:port", a)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q: port must be 1 to 65535", a)
	}
	if strings.ContainsAny(host, " \t/") {
		return fmt.Errorf("%q: %q is not a host name", a, host)
	}
	return nil
}

func checkListen(a string) error {
	_, port, err := net.SplitHostPort(a)
	if err != nil {
		return fmt.Errorf("%q is not host:port", a)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%q: port must be 0 to 65535", a)
	}
	return nil
}
