package coordinator

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// DataPath mirrors partitions. Reconcile gets the full set each time and never blocks; Positions tells about all of it;
// Moved rises as soon as Positions has something new to tell, other than lag that only grows older.
type DataPath interface {
	Reconcile(targets []mirror.Target)
	Positions() []mirror.PositionReport
	Moved() int64
}

// Effect does what a state asks for, for many partitions at once, and answers in their order; nil: done. It may be
// repeated. The context carries the lease (kafka.WithLease).
type Effect func(ctx context.Context, targets []mirror.Target) []error

// Deps is what a Coordinator needs. Functions are called on goroutines of their own and may take long, except those of
// DataPath, LeaseLost and Event, which must not block.
type Deps struct {
	Config  Config
	Store   *statestore.Store
	Cluster *kafka.Cluster // the destination
	Name    string         // of this instance, as shown in describe
	HTTP    string         // its HTTP address, for messages

	DataPath DataPath
	// Align is the effect of LOG_TRUNCATION: no error means that the destination's log is a prefix of the source's; ends are
	// its log ends.
	Align   func(ctx context.Context, targets []mirror.Target) (ends []int64, errs []error)
	Fence   Effect // EPOCH_FENCING
	Sweep   Effect // STOPPING, where it is not known how far was mirrored: removes the fillers of an unfinished seeding
	Promote Effect // STOPPING, after the drain and the record of the last mirrored position

	// Resolve finds the topics of the source that items select. refused holds, by item or topic, why it is not among
	// them; a pattern that matches nothing yet is in neither. err: the source could not be asked.
	Resolve func(ctx context.Context, mirrorName string, items, exclude []string) (topics []string, refused map[string]error, err error)
	// Lag looks at both clusters now and tells how many offsets of each topic are not mirrored yet.
	Lag func(ctx context.Context, mirrorName string, topics []string) (map[string]int64, error)
	// Reseed exports what only the destination has, recreates the topic there and returns the export's path. Right before it
	// deletes anything it asks commit, which refuses if anybody has decided about the topic since.
	Reseed func(ctx context.Context, mirrorName, topic string, commit func(context.Context) error) (path string, err error)
	// Define changes a definition by properties with Kafka's names.
	Define func(base mirror.Definition, settings map[string]string) (mirror.Definition, error)

	LeaseLost  func()             // resets the connections on which effects leave (protocol R16)
	Event      func(mirror.Event) // each state change that this instance sees, of any owner
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Coordinator is one instance's part in coordinating the mirrors of a destination. It is safe for concurrent use.
type Coordinator struct {
	deps    Deps
	log     *slog.Logger
	view    *statestore.View
	lease   *lease
	box     *mailbox
	metrics *metrics
	runner  *runner

	clusterID string // of the destination; set before the loop runs

	declared atomic.Pointer[[]mirror.Definition]
	leased   atomic.Bool // the lease lasted when the loop last looked
	joined   atomic.Bool // what Joined says
	problem  atomic.Pointer[error]

	mu      sync.Mutex // guards what follows
	owned   map[int32]bool
	changed chan struct{} // closed and replaced when owned changes
}

// New makes a Coordinator without touching the network.
func New(d Deps) *Coordinator {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Event == nil {
		d.Event = func(mirror.Event) {}
	}
	if d.LeaseLost == nil {
		d.LeaseLost = func() {}
	}
	c := &Coordinator{
		deps: d, log: d.Log, view: d.Store.View(), lease: newLease(), box: newMailbox(),
		owned: map[int32]bool{}, changed: make(chan struct{}),
	}
	c.runner = newRunner(c)
	c.metrics = newMetrics(d.Registerer)
	return c
}

const (
	// releaseTime bounds giving up shards: in it the data path drains and the release is written.
	releaseTime = 5 * time.Second
	leaveTime   = 2 * time.Second
)

// Run takes part until the context ends; then it drains, gives up its shards and leaves the group, within releaseTime +
// leaveTime. An error means that this instance must not run: another group owns the destination, or this one's settings
// are refused. An unreachable destination is waited for.
func (c *Coordinator) Run(ctx context.Context) error {
	if err := c.awaitDestination(ctx); err != nil || ctx.Err() != nil {
		c.box.close()
		return err
	}
	g := &group{cfg: c.deps.Config, lease: c.lease, member: c.deps.Store.SetMember, told: c.setProblem, to: c, generation: -1}
	if err := g.open(c.deps.Cluster); err != nil {
		c.box.close()
		return err
	}
	beats, stop := context.WithCancel(context.WithoutCancel(ctx)) // the lease is needed until all is given up
	var beating sync.WaitGroup
	beating.Go(func() { g.run(beats) })
	err := c.runner.run(ctx)
	stop()
	beating.Wait()
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTime)
	defer cancel()
	g.close(leave)
	c.lease.end()
	return err
}

// Lease is nil while this instance may act on the destination (protocol R16). Every effect asks right before it leaves.
func (c *Coordinator) Lease() error { return c.lease.check() }

// Joined reports whether the group has confirmed this instance, every shard it was given is loaded and claimed, and the
// declared mirrors of those are there.
func (c *Coordinator) Joined() bool { return c.joined.Load() }

// Problem is why the group does not take this instance, as far as an operator has to know; nil: nothing is known to be wrong.
func (c *Coordinator) Problem() error {
	if err := c.problem.Load(); err != nil {
		return *err
	}
	return nil
}

// setProblem tells a problem once, and that it is over.
func (c *Coordinator) setProblem(err error) {
	var now *error
	if err != nil {
		now = &err
	}
	switch before := c.problem.Swap(now); {
	case err != nil && (before == nil || (*before).Error() != err.Error()):
		c.log.Error("group refused this instance", mirror.KeyGroup, c.deps.Config.GroupID, mirror.KeyErr, err)
	case err == nil && before != nil:
		c.log.Info("group takes this instance again", mirror.KeyGroup, c.deps.Config.GroupID)
	}
}

// Fresh reports whether the state topic held nothing when this instance first read it: what the destination holds then is
// known to nobody.
func (c *Coordinator) Fresh() bool { return c.view.Fresh() }

// OwnsShard reports whether this instance has claimed a shard and may drive it.
func (c *Coordinator) OwnsShard(shard int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owned[shard]
}

// OwnedMirrors are the mirrors whose own records this instance writes, sorted by name.
func (c *Coordinator) OwnedMirrors() (names []string) {
	n := c.view.Shards()
	for _, m := range c.view.Mirrors() {
		if c.OwnsShard(mirror.ShardOfMirror(m.Name, n)) {
			names = append(names, m.Name)
		}
	}
	return names
}

// Changed is closed when the set of owned shards, or of mirrors in them, changes next. It is a level trigger: take it, look, wait.
func (c *Coordinator) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *Coordinator) setOwned(owned map[int32]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owned = owned
	close(c.changed)
	c.changed = make(chan struct{})
}

// Declare sets the mirrors of the configuration file. The owner of each makes its definition match; one that is left out
// stays as it is.
func (c *Coordinator) Declare(definitions []mirror.Definition) {
	c.declared.Store(&definitions)
	c.box.post(func() {})
}

// Put appends mirror-level records on behalf of the metadata manager. It fails with kind Fenced where this instance does
// not own the mirror. What an operator commanded since the caller looked is not undone: see merged.
func (c *Coordinator) Put(ctx context.Context, mirrorName string, records ...statestore.Record) error {
	return c.decided(ctx, mirrorName, func(r *runner) ([]statestore.Record, error) { return r.merged(records), nil })
}

// decided appends what is decided on the loop, on the view of that moment, for a mirror whose shard this instance owns.
func (c *Coordinator) decided(ctx context.Context, mirrorName string, decide func(*runner) ([]statestore.Record, error)) error {
	done := make(chan error, 1)
	posted := c.post(func(r *runner) {
		r.put(mirrorName, &item{
			prepare: func() ([]statestore.Record, error) { return decide(r) },
			done:    func(err error) { done <- err },
		})
	})
	if !posted {
		return errEnded
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Failed reports that a partition cannot go on, as WriteMirrorStates with FAILED does, without waiting for the record. A
// report about an older state epoch is dropped.
func (c *Coordinator) Failed(t mirror.Target, err error) {
	c.post(func(r *runner) { r.happened(t, happening{what: failed, err: err}) })
}

// Fencing reports that the destination's leader epoch has to be raised above the source's.
func (c *Coordinator) Fencing(t mirror.Target) {
	c.post(func(r *runner) { r.happened(t, happening{what: fencing}) })
}

// SourceUp reports that a mirror's source answers again: partitions that wait for just that are tried at once.
func (c *Coordinator) SourceUp(mirrorName string) {
	c.post(func(r *runner) { r.sourceUp(mirrorName) })
}

func (c *Coordinator) post(f func(*runner)) bool {
	return c.box.post(func() { f(c.runner) })
}

var errEnded = mirror.Errorf(mirror.Fenced, "this instance is not coordinating now")
