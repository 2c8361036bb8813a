package kafka

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/plugin/kprom"
	"github.com/twmb/franz-go/plugin/kslog"

	"mirrord/internal/mirror"
)

// Cluster is one Kafka cluster. It is safe for concurrent use and reconnects by itself; nothing is dialled before the
// first request.
type Cluster struct {
	cfg       Config
	security  *security
	bootstrap *bootstrap
	client    *kgo.Client
	admin     *kadm.Client
	pool      buffers // of Conns that were dialled by Dial
	unpooled  buffers // keeps nothing
	lanes     laneConns

	mu      sync.Mutex // guards what follows
	brokers map[int32]Broker
	topics  map[string]Topic // as last seen; for finding leaders only
}

// Open prepares a cluster without touching the network. Errors are about the configuration.
func Open(cfg Config) (*Cluster, error) {
	cfg = cfg.withDefaults()
	if len(cfg.Connection.BootstrapServers) == 0 {
		return nil, mirror.Errorf(mirror.Refused, "open cluster: no bootstrap servers")
	}
	sec, err := newSecurity(cfg)
	if err != nil {
		return nil, fmt.Errorf("open cluster: %w", err)
	}
	c := &Cluster{
		cfg: cfg, security: sec, bootstrap: newBootstrap(cfg.Connection.BootstrapServers, cfg.Logger), pool: buffers{retain: defaultRetain},
		brokers: map[int32]Broker{}, topics: map[string]Topic{},
	}
	opts := c.Opts()
	if cfg.Registerer != nil {
		opts = append(opts, kgo.WithHooks(kprom.NewMetrics("mirrord_kafka_client", kprom.Registerer(tolerant{cfg.Registerer}))))
	}
	if c.client, err = kgo.NewClient(append(opts, kgo.MaxVersions(adminVersions()))...); err != nil {
		return nil, fmt.Errorf("open cluster: %w", err)
	}
	c.admin = kadm.NewClient(c.client)
	return c, nil
}

// adminVersions holds back the transaction requests to the forms that serve transactions without data (protocol R12):
// later ones are for brokers, or raise the producer epoch with every transaction. Committed offsets go by topic name, as
// groups keep them, since the two sides' topic ids differ and an unknown id would be asked for again and again.
func adminVersions() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(kmsg.OffsetCommit.Int16(), 9)
	v.SetMaxKeyVersion(kmsg.OffsetFetch.Int16(), 9)
	v.SetMaxKeyVersion(kmsg.AddPartitionsToTxn.Int16(), 3)
	v.SetMaxKeyVersion(kmsg.EndTxn.Int16(), 3)
	return v
}

// Close ends the cluster's own connections. Conns are their owners' to close.
func (c *Cluster) Close() {
	c.lanes.close()
	c.client.Close()
}

// Opts are the options with which another client of the same cluster is made: addresses, security, time limits, logger.
func (c *Cluster) Opts() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.bootstrap.names()...),
		kgo.ClientID(c.cfg.ClientID),
		kgo.SoftwareNameAndVersion("mirrord", "1"),
		kgo.WithLogger(debugLogger{kslog.New(c.cfg.Logger)}),
		kgo.Dialer(c.dialClient),
		kgo.RequestTimeoutOverhead(c.cfg.RequestTimeout),
		kgo.MetadataMinAge(minMetadataAge),
		kgo.AlwaysRetryEOF(), // a broker that restarts or a proxy that is cut: not a wrong security protocol
		kgo.DisableClientMetrics(),
	}
	if m := c.security.mechanism(); m != nil {
		opts = append(opts, kgo.SASL(m))
	}
	return opts
}

// dialClient serves franz-go's clients.
func (c *Cluster) dialClient(ctx context.Context, network, address string) (net.Conn, error) {
	if isBootstrapName(address) {
		return c.bootstrap.dial(ctx, c.security, network)
	}
	return c.security.dial(ctx, network, address)
}

// Client is the cluster's own client, for requests that any broker answers.
func (c *Cluster) Client() *kgo.Client { return c.client }

// Admin is kadm over Client. Its metadata is cached for some seconds: where that matters, use Metadata.
func (c *Cluster) Admin() *kadm.Client { return c.admin }

// ID asks the cluster for its id now.
func (c *Cluster) ID(ctx context.Context) (string, error) {
	m, err := c.askMetadata(ctx, []string{})
	return m.ClusterID, err
}

// Bootstrap lists the configured addresses.
func (c *Cluster) Bootstrap() []string { return c.cfg.Connection.BootstrapServers }

// Connection says how the cluster is reached.
func (c *Cluster) Connection() mirror.Connection { return c.cfg.Connection }

// debugLogger lets franz-go speak at debug level only: what it degrades and heals by itself is not an operator's matter.
type debugLogger struct{ *kslog.Logger }

func (l debugLogger) Level() kgo.LogLevel {
	if l.Logger.Level() < kgo.LogLevelDebug {
		return kgo.LogLevelNone
	}
	return kgo.LogLevelDebug
}

// Log writes everything as debug.
func (l debugLogger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	l.Logger.Log(kgo.LogLevelDebug, msg, append([]any{"client_level", level.String()}, keyvals...)...)
}
