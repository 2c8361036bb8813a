package daemon

import (
	"context"

	"mirrord/internal/compare"
	"mirrord/internal/config"
	"mirrord/internal/control"
	"mirrord/internal/coordinator"
	"mirrord/internal/fetcher"
	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/mmm"
	"mirrord/internal/promote"
	"mirrord/internal/statestore"
)

// parts are the working parts as the rest of this package needs them.
type parts struct {
	store *statestore.Store

	coordinate, fetch, metadata func(context.Context) error // actors

	joined       func() bool
	groupProblem func() error
	ownsShard    func(shard int32) bool
	declare      func([]mirror.Definition)
	sourceUp     func(mirrorName string)
	setLimits    func(memory, throttle int64)
	read         func(context.Context, mirror.ReadMirrorStatesRequest) mirror.ReadMirrorStatesResponse
	write        func(context.Context, mirror.WriteMirrorStatesRequest) mirror.WriteMirrorStatesResponse
	probes       []probe
}

// wire builds the parts and ties them together. It is one straight function, longer than others, because every part
// needs those before it, and because the knot is tied here: coordinator, data path and metadata manager call one another
// without knowing one another, so each is given functions that look the other up when called.
func (d *Daemon) wire() parts {
	cfg, registerer := d.cfg, d.gatherer.main
	store := statestore.Open(
		statestore.Config{NumPartitions: cfg.StateTopic.NumPartitions, ReplicationFactor: cfg.StateTopic.ReplicationFactor, GroupID: cfg.GroupID},
		statestore.Deps{Cluster: d.destination, Instance: d.name, Log: d.component("state"), Registerer: registerer})
	view := store.View()

	var c *coordinator.Coordinator
	lease := func() error { return c.Lease() }
	var pool *fetcher.Pool
	e := &effects{
		destination: d.destination,
		source:      d.sources.get,
		meant:       d.sources.meant,
		view:        view,
		promoter:    promote.New(promote.Deps{Destination: d.destination, Lease: lease, Log: d.component("promote")}),
		sweep:       func(ctx context.Context, ts []mirror.Target) []error { return pool.Sweep(ctx, ts) },
		positions:   func() []mirror.PositionReport { return pool.Positions() },
		event:       d.events.Add,
	}
	pool = fetcher.NewPool(fetcherConfig(cfg), fetcher.Deps{
		Destination: d.destination,
		Source:      func(m *mirror.Resolved) (*kafka.Cluster, error) { return d.sources.get(m.Definition) },
		Lease:       lease,
		Failed:      func(t mirror.Target, err error) { c.Failed(t, err) },
		Fencing: func(t mirror.Target, epoch int32) {
			if e.fenced.near(t, epoch) {
				c.Fencing(t)
			}
		},
		Tail:       compare.Tail,
		TooLarge:   messageLimit{d.destination, lease}.raise,
		Event:      d.events.Add,
		Log:        d.component("fetcher"),
		Registerer: registerer,
	})
	manager := mmm.NewManager(mmmConfig(cfg), mmm.Deps{
		Destination: d.destination,
		Source:      d.sources.get,
		Renew:       d.sources.renew,
		View:        view,
		Put: func(ctx context.Context, mirrorName string, records ...statestore.Record) error {
			return c.Put(ctx, mirrorName, records...)
		},
		Lease:      lease,
		Owned:      func() []string { return c.OwnedMirrors() },
		Changed:    func() <-chan struct{} { return c.Changed() },
		Fresh:      view.Fresh,
		Commanded:  view.Commanded,
		Opposite:   e.opposite,
		Tail:       e.tail,
		Event:      d.events.Add,
		Log:        d.component("metadata"),
		Registerer: registerer,
	})
	c = coordinator.New(coordinator.Deps{
		Config:     coordinatorConfig(cfg),
		Store:      store,
		Cluster:    d.destination,
		Name:       d.name,
		HTTP:       cfg.HTTP.Listen,
		DataPath:   pool,
		Align:      e.align,
		Fence:      e.fence,
		Sweep:      pool.Sweep,
		Promote:    e.promote,
		Resolve:    manager.Resolve,
		Lag:        e.lag,
		Reseed:     manager.Reseed,
		Define:     define,
		LeaseLost:  func() { d.destination.Reset(); pool.Reset() },
		Event:      d.events.Add,
		Log:        d.component("coordinator"),
		Registerer: registerer,
	})
	return parts{
		store: store, coordinate: c.Run, fetch: pool.Run, metadata: manager.Run,
		joined: c.Joined, groupProblem: c.Problem, ownsShard: c.OwnsShard, declare: c.Declare, setLimits: pool.SetLimits,
		sourceUp: func(mirrorName string) {
			c.SourceUp(mirrorName)
			manager.Wake(mirrorName)
		},
		read: c.ReadMirrorStates, write: c.WriteMirrorStates,
		probes: []probe{
			{"coordinator", c.Alive},
			{"fetchers", func(context.Context) error { pool.Positions(); return nil }},
			{"metadata", func(context.Context) error { manager.Statuses(); return nil }},
		},
	}
}

// define changes a definition by properties. It runs on the daemon's host, so what they refer to can be looked at.
func define(base mirror.Definition, settings map[string]string) (mirror.Definition, error) {
	return config.ApplyProperties(base, settings, kafka.ResolveSecret)
}

// serverDeps is what the HTTP server shows.
func (d *Daemon) serverDeps() control.ServerDeps {
	view := d.parts.store.View()
	return control.ServerDeps{
		Ready: d.health.ready,
		View: func() *statestore.View {
			if view.Shards() == 0 {
				return nil
			}
			return view
		},
		Read:  d.parts.read,
		Write: d.parts.write,
		Submit: func(ctx context.Context, cmd mirror.Command) error {
			return statestore.SubmitCommand(ctx, d.destination, cmd)
		},
		Destination: d.destination,
		Events:      d.events, History: d.history, Gatherer: d.gatherer, Log: d.component("http"),
	}
}

func fetcherConfig(c *config.Config) fetcher.Config {
	f := fetcher.DefaultConfig()
	f.Threads, f.MaxWait = c.Fetch.Threads, c.Fetch.MaxWait
	f.MinBytes, f.MaxBytes, f.PartitionMaxBytes = int32(c.Fetch.MinBytes), int32(c.Fetch.MaxBytes), int32(c.Fetch.PartitionMaxBytes)
	f.MemoryLimit, f.Throttle = c.MemoryLimit, c.Throttle
	f.RequestTimeout, f.TakeoverWait = kafka.DefaultRequestTimeout, c.SessionTimeout+kafka.DefaultRequestTimeout
	return f
}

func coordinatorConfig(c *config.Config) coordinator.Config {
	return coordinator.Config{
		GroupID: c.GroupID, InstanceID: c.InstanceID, SessionTimeout: c.SessionTimeout,
		Retry: mirror.Backoff{Initial: c.Retry.InitialBackoff, Max: c.Retry.MaxBackoff, MaxAttempts: c.Retry.MaxAttempts},
	}
}

func mmmConfig(c *config.Config) mmm.Config {
	m := mmm.DefaultConfig()
	m.RefreshInterval, m.GroupSyncInterval, m.DataDir = c.MetadataRefreshInterval, c.GroupSyncInterval, c.DataDir
	return m
}
