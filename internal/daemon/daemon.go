package daemon

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"mirrord/internal/config"
	"mirrord/internal/control"
	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// Shares of the 10 s that a shutdown may take. Most of it is the coordinator's, which has the data path drain and writes
// the last positions and the releases.
const (
	metadataLimit = 1 * time.Second
	leaveLimit    = 6 * time.Second
	drainLimit    = 500 * time.Millisecond
	storeLimit    = 300 * time.Millisecond
	httpLimit     = 1200 * time.Millisecond
	closeLimit    = 500 * time.Millisecond
)

// Options are what a process gives to a Daemon.
type Options struct {
	Log     *slog.Logger
	Level   *slog.LevelVar // changed by reload; may be nil
	Version string
	// Hangups ask for a reload, one each. Hurry, when closed, ends all waiting of a shutdown.
	Hangups <-chan struct{}
	Hurry   <-chan struct{}
}

// Daemon is one instance of mirrord. Build it with New, run it once with Run.
type Daemon struct {
	opts     Options
	log      *slog.Logger
	started  *config.Config // what this process was started with
	cfg      *config.Config // as last read; owned by the reload actor while running
	name     string
	notifier *notifier
	gatherer *gatherer
	metrics  *metrics

	destination *kafka.Cluster
	sources     *sources
	parts       parts
	health      *health
	events      *control.Events
	history     *control.History
	server      *control.Server
	undo        undo
}

// Run is the process: it reads the file, runs until SIGTERM, SIGINT or the end of ctx, and reloads on SIGHUP. A second
// signal ends it without waiting for what still drains. The error is *config.Mistakes for a bad file.
func Run(ctx context.Context, configFile string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	hangups, hurry := listen(ctx, cancel)
	cfg, err := config.Load(configFile)
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	level.Set(parseLevel(cfg.Log))
	d, err := New(cfg, Options{Log: newLogger(cfg.Log.Format, os.Stderr, level), Level: level, Version: Version(), Hangups: hangups, Hurry: hurry})
	if err != nil {
		return err
	}
	return d.Run(ctx)
}

// listen turns signals into a reload request, the end of ctx, or, the second time, into hurry. It listens until the
// process ends: a signal during the last steps of a shutdown must not kill it. That whoever reads the log has gone away
// is no reason to end.
func listen(ctx context.Context, cancel context.CancelFunc) (hangups, hurry chan struct{}) {
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, os.Interrupt)
	hangups, hurry = make(chan struct{}, 1), make(chan struct{})
	go func() {
		asked := 0
		for s := range signals {
			if s == syscall.SIGHUP {
				select {
				case hangups <- struct{}{}:
				default: // one is waiting already and will see the file as it is then
				}
				continue
			}
			cancel()
			if asked++; asked == 2 {
				close(hurry)
			}
		}
	}()
	return hangups, hurry
}

// New builds a daemon without touching the clusters. It binds the HTTP address, so that a wrong one is known at once.
func New(cfg *config.Config, opts Options) (*Daemon, error) {
	d := &Daemon{
		opts: opts, log: opts.Log, started: cfg, cfg: cfg, name: instanceName(cfg), notifier: newNotifier(opts.Log),
		gatherer: newGatherer(), events: new(control.Events), history: new(control.History),
	}
	d.metrics = newMetrics(d.gatherer.main, opts.Version)
	if err := d.open(); err != nil {
		d.undo.run(d.log, closeLimit)
		return nil, err
	}
	d.parts.declare(cfg.Mirrors)
	return d, nil
}

// open builds all that has to be closed again.
func (d *Daemon) open() (err error) {
	d.undo.push("memory limit", BoundMemory(d.cfg.MemoryLimit))
	if d.destination, err = d.openDestination(); err != nil {
		return err
	}
	d.sources = &sources{open: d.openSource}
	d.undo.push("sources", d.sources.closeAll)
	d.parts = d.wire()
	d.health = d.newHealth()
	if d.server, err = control.OpenServer(serverConfig(d.cfg.HTTP), d.serverDeps()); err != nil {
		return &config.Mistakes{File: d.cfg.File, List: []config.Mistake{{Key: "http", Text: err.Error()}}}
	}
	d.undo.push("http", d.server.Close)
	return nil
}

// instanceName tells this process from all others, also from its own predecessor: it becomes part of a transactional id.
func instanceName(cfg *config.Config) string {
	base := cfg.InstanceID
	if base == "" {
		if base, _ = os.Hostname(); base == "" {
			base = "mirrord"
		}
	}
	return base + "-" + rand.Text()[:6]
}

// Run runs until ctx ends, then stops in order within 10 s. The error tells what this instance cannot go on with; a
// shutdown that was asked for is none, even if something was left behind.
func (d *Daemon) Run(ctx context.Context) error {
	defer d.undo.run(d.log, closeLimit)
	d.log.Info("mirrord started", d.startAttrs()...)
	stopWatching := context.AfterFunc(ctx, d.notifier.stopping)
	defer stopWatching()
	asked := ctx
	err := runStages(ctx, d.log, d.opts.Hurry, d.stages()...)
	if asked.Err() == nil {
		return d.fatal(err)
	}
	if err != nil {
		d.log.Warn("stopped with leftovers", mirror.KeyErr, err)
	}
	d.log.Info("mirrord stopped")
	return nil
}

// fatal explains why an instance ended by itself. What the destination refuses for good is a mistake of the file.
func (d *Daemon) fatal(err error) error {
	if mirror.KindOf(err) == mirror.Refused {
		return &config.Mistakes{File: d.cfg.File, List: []config.Mistake{{Text: err.Error()}}}
	}
	return err
}

// stages is the order of life: who writes what others produce is started before them and stopped after them. The data
// path outlives the coordinator, which at its end asks it to drain and waits for that.
func (d *Daemon) stages() []stage {
	view := d.parts.store.View()
	return []stage{
		{httpLimit, []actor{
			{"http", d.server.Run},
			{"health", d.health.run},
			{"reload", d.reload},
			{"watchdog", newWatchdog(d.notifier, d.parts.probes).run},
			{"sources", func(ctx context.Context) error { return d.sources.watch(ctx, view) }},
			{"history", func(ctx context.Context) error { return d.history.Watch(ctx, view) }},
		}},
		{storeLimit, []actor{{"state store", d.parts.store.Run}}},
		{drainLimit, []actor{{"fetchers", d.parts.fetch}}},
		{leaveLimit, []actor{{"coordinator", d.parts.coordinate}}},
		{metadataLimit, []actor{{"metadata", d.parts.metadata}, {"ready", d.tellReady}}},
	}
}

// tellReady runs in the last stage: when it is called, all loops run.
func (d *Daemon) tellReady(ctx context.Context) error {
	d.notifier.ready()
	<-ctx.Done()
	return ctx.Err()
}

// startAttrs are the settings that differ from the defaults: what an operator wants to see confirmed.
func (d *Daemon) startAttrs() []any {
	attrs := []any{"version", d.opts.Version, "instance", d.name, "file", d.cfg.File, "http", d.server.Addr(), "mirrors", d.cfg.MirrorNames()}
	standard := config.Default()
	changed := config.Changed(&standard, d.cfg)
	for _, kv := range d.cfg.Effective() {
		if slices.Contains(changed, kv[0]) {
			attrs = append(attrs, kv[0], kv[1])
		}
	}
	return attrs
}

func (d *Daemon) openDestination() (*kafka.Cluster, error) {
	reg, remove := d.gatherer.client("destination")
	cluster, err := kafka.Open(kafka.Config{Connection: d.cfg.Destination, Logger: d.log.With(mirror.KeyCluster, "destination"), Registerer: reg})
	if err != nil {
		remove()
		return nil, fmt.Errorf("open destination: %w", err)
	}
	d.undo.push("destination", func() error {
		cluster.Close()
		remove()
		return nil
	})
	return cluster, nil
}

func (d *Daemon) openSource(mirrorName string, c mirror.Connection) (*kafka.Cluster, func(), error) {
	reg, remove := d.gatherer.client("source of " + mirrorName)
	cluster, err := kafka.Open(kafka.Config{Connection: c, Logger: d.log.With(mirror.KeyCluster, "source", mirror.KeyMirror, mirrorName), Registerer: reg})
	if err != nil {
		remove()
		return nil, nil, fmt.Errorf("open source of %s: %w", mirrorName, err)
	}
	return cluster, func() {
		cluster.Close()
		remove()
	}, nil
}

func (d *Daemon) newHealth() *health {
	view := d.parts.store.View()
	h := &health{
		destination: d.destination,
		sources: func() map[string]asker {
			all := map[string]asker{}
			for _, s := range d.sources.list() {
				all[s.mirror] = s.cluster
			}
			return all
		},
		sourceUp: d.parts.sourceUp,
		status: func(r control.Readiness) {
			mirrors, states := d.history.Totals()
			d.notifier.say(statusLine(r, mirrors, states))
		},
		metrics: d.metrics,
		log:     d.log,
	}
	member := membership{d.parts.joined, d.parts.ownsShard, view, d.parts.store.Problem, d.parts.groupProblem}
	h.ready = func(ctx context.Context) control.Readiness {
		return readiness(ctx, h, member, control.Readiness{Instance: d.name, Version: d.opts.Version})
	}
	return h
}

func serverConfig(c config.HTTP) control.ServerConfig {
	return control.ServerConfig{
		Listen: c.Listen, Loopback: c.Loopback(), TokenFile: c.TokenFile,
		CertFile: c.TLS.CertFile, KeyFile: c.TLS.KeyFile, ClientCAFile: c.TLS.ClientCAFile,
	}
}

// component is the logger of one part.
func (d *Daemon) component(name string) *slog.Logger { return d.log.With("component", name) }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
