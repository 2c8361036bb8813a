package main

import (
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"mirrord/internal/config"
	"mirrord/internal/control"
	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// Time limits of the command line: a cluster that cannot be reached is told within seconds.
const (
	dialTimeout    = 2 * time.Second
	requestTimeout = 4 * time.Second
)

// connection says which destination is meant.
type connection struct {
	bootstrap, commandConfig, configFile string
}

// flags adds the flags of every command that talks to a destination.
func (c *connection) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.bootstrap, "bootstrap-server", "", "brokers of the destination, as HOST:PORT[,HOST:PORT...]; :PORT means localhost")
	f.StringVar(&c.commandConfig, "command-config", "", "Kafka client properties for --bootstrap-server")
	f.StringVar(&c.configFile, "config", "", "configuration file of the daemon, whose destination is used (default $MIRRORD_CONFIG)")
}

// open prepares everything that an operator's command needs. The caller closes the cluster.
func (c *connection) open(cmd *cobra.Command) (*control.Operator, error) {
	_, where, err := c.resolve()
	if err != nil {
		return nil, err
	}
	cluster, err := openCluster(where)
	if err != nil {
		return nil, err
	}
	return &control.Operator{
		Destination: cluster, Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
		Terminal: isatty.IsTerminal(os.Stderr.Fd()), OutTerminal: isatty.IsTerminal(os.Stdout.Fd()),
	}, nil
}

// resolve finds the destination. The configuration is nil with --bootstrap-server alone.
func (c *connection) resolve() (*config.Config, mirror.Connection, error) {
	file := c.configFile
	if file == "" && c.bootstrap == "" {
		file = os.Getenv(config.ConfigVariable)
	}
	var cfg *config.Config
	var where mirror.Connection
	if file != "" {
		var err error
		if cfg, err = config.Load(file); err != nil {
			return nil, where, err
		}
		where = cfg.Destination
	}
	switch {
	case c.bootstrap == "" && c.commandConfig != "":
		return nil, where, usage("--command-config goes with --bootstrap-server")
	case c.bootstrap == "" && cfg == nil:
		return nil, where, usage("which destination? give --bootstrap-server, --config or MIRRORD_CONFIG")
	case c.bootstrap == "":
		return cfg, where, nil
	}
	where, err := c.byFlags()
	return cfg, where, err
}

// byFlags is the connection that --bootstrap-server and --command-config give.
func (c *connection) byFlags() (where mirror.Connection, err error) {
	for _, address := range strings.Split(c.bootstrap, ",") {
		host, port, err := net.SplitHostPort(strings.TrimSpace(address))
		n, bad := strconv.Atoi(port)
		if err != nil || bad != nil || n < 1 || n > 65535 {
			return where, usage("--bootstrap-server " + strconv.Quote(address) + " is not HOST:PORT")
		}
		if host == "" {
			host = "localhost"
		}
		where.BootstrapServers = append(where.BootstrapServers, net.JoinHostPort(host, port))
	}
	if c.commandConfig != "" {
		if where.Security, err = config.LoadClientSecurity(c.commandConfig); err != nil {
			return where, &usageError{err}
		}
	}
	return where, nil
}

func openCluster(where mirror.Connection) (*kafka.Cluster, error) {
	return kafka.Open(kafka.Config{Connection: where, ClientID: "mirrord-cli", DialTimeout: dialTimeout, RequestTimeout: requestTimeout})
}

// source opens the source of a mirror with what this host knows: the configuration file where it declares the mirror,
// else what is stored at the destination, whose secrets are looked up here.
func (c *connection) source(d mirror.Definition) (*kafka.Cluster, error) {
	cfg, _, err := c.resolve()
	if err != nil {
		return nil, err
	}
	where := d.Source
	if cfg != nil {
		for _, declared := range cfg.Mirrors {
			if declared.Name == d.Name {
				where = declared.Source
			}
		}
	}
	return openCluster(where)
}
