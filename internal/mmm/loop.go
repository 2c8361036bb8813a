package mmm

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

const (
	glance    = 250 * time.Millisecond // least time between two looks at a view that keeps changing
	lastWord  = 3 * time.Second        // how long a promotion waits for the source's last committed offsets
	tryFinish = time.Second            // between attempts to finish a promotion that the destination refuses
)

// loop is the actor of one mirror: the only goroutine that changes the destination for it. It alone uses its fields,
// apart from board.
type loop struct {
	name    string
	cfg     Config
	deps    Deps
	log     *slog.Logger
	metrics *metrics
	board   board
	speaker *speaker
	wake    chan struct{}

	observing   bool
	observedAt  time.Time // when the running or last observation began
	observed    chan observation
	nextRefresh time.Time
	nextGroups  time.Time
	nextFinish  time.Time
	stopping    map[string]bool // topics that are wished STOPPED and not promoted
	stopSince   time.Time       // when the last of them was first seen
	ripe        bool            // some have all partitions STOPPED
	seen        glimpse
	up          bool // the source answered last time
	down        bool // it did not

	recreating    *topicSet
	destinationID string
	failures      map[Step][]error // of the running pass
	trouble       map[string]string
	created       map[string]time.Time // topics that this loop created and has not seen since, by when
	seeding       map[string]bool      // topics whose cleanup policy looks like seeding
	retention     time.Duration        // of committed offsets at the destination; 0: not known yet
	guard         guardState
	circles       circles              // of the running cycle
	groupSaid     map[string]time.Time // when a group was last told to be skipped
	groupSkipped  map[string]bool      // by the last pass
}

func newLoop(name string, cfg Config, deps Deps, m *metrics) *loop {
	log := deps.Log.With(mirror.KeyMirror, name)
	return &loop{
		name: name, cfg: cfg, deps: deps, log: log, metrics: m, speaker: newSpeaker(log), recreating: &topicSet{}, created: map[string]time.Time{},
		wake: make(chan struct{}, 1), observed: make(chan observation, 1), failures: map[Step][]error{},
		trouble: map[string]string{}, seeding: map[string]bool{}, groupSaid: map[string]time.Time{},
		board: board{status: Status{Mirror: name, Errors: map[Step]StepError{}, Notes: map[string]string{}}},
	}
}

// run drives the mirror until ctx ends. Its observer has ended when it returns.
func (l *loop) run(ctx context.Context) {
	l.metrics.begin(l.name)
	defer l.metrics.end(l.name)
	ctx = kafka.WithLease(ctx, l.deps.Lease)
	defer func() {
		if l.observing {
			<-l.observed
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var changed <-chan struct{} // nil: the view has changed and was not looked at since
	looked := time.Time{}
	for {
		if changed == nil && time.Since(looked) >= glance {
			changed, looked = l.deps.View.Changed(), time.Now()
			l.glance()
		}
		l.start(ctx)
		if l.finishNow() {
			l.finish(ctx)
		}
		next := l.next()
		if changed == nil {
			next = earlier(next, looked.Add(glance))
		}
		timer.Reset(max(0, time.Until(next)))
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
			l.nextRefresh = time.Time{}
		case <-timer.C:
		case <-changed:
			changed = nil
		case seen := <-l.observed:
			l.observing = false
			l.act(ctx, seen)
		}
	}
}

// next is when something is to be done even if nothing happens.
func (l *loop) next() time.Time {
	next := time.Now().Add(l.cfg.RefreshInterval)
	if !l.observing {
		next = earlier(l.nextRefresh, l.nextGroups)
	}
	if at := l.finishAt(); !at.IsZero() {
		next = earlier(next, at)
	}
	return next
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// start sends the observer off when a look at the source is due.
func (l *loop) start(ctx context.Context) {
	now := time.Now()
	full, groups := !now.Before(l.nextRefresh), !now.Before(l.nextGroups)
	last := l.wantsLastWord()
	if l.observing || !full && !groups && !last {
		return
	}
	m, ok := l.deps.View.Mirror(l.name)
	if !ok {
		l.nextRefresh, l.nextGroups = now.Add(l.cfg.RefreshInterval), now.Add(l.cfg.GroupSyncInterval)
		return
	}
	if full {
		l.nextRefresh = now.Add(l.cfg.RefreshInterval)
	}
	l.nextGroups = now.Add(l.cfg.GroupSyncInterval)
	l.observing, l.observedAt = true, now
	o, destinationID := l.observer(), l.destinationID
	go func() { l.observed <- l.observe(ctx, o, m.Definition, destinationID, full) }()
}

// observe runs in the observer's goroutine; it only reads.
func (l *loop) observe(ctx context.Context, o observer, def mirror.Definition, destinationID string, full bool) observation {
	if destinationID == "" {
		var err error
		destinationID, err = within(ctx, l.cfg.CallTimeout, l.deps.Destination.ID)
		if err != nil {
			return observation{at: time.Now(), full: full, err: fmt.Errorf("ask the destination for its cluster id: %w", err), destination: true}
		}
	}
	seen := l.observeSource(ctx, o, def, destinationID, full)
	if m, ok := l.deps.View.Mirror(l.name); ok && seen.err == nil && l.deps.Renew != nil && !expected(m, seen.clusterID, destinationID) {
		l.deps.Renew(def)
		seen = l.observeSource(ctx, o, def, destinationID, full)
	}
	seen.destinationID = destinationID
	return seen
}

func (l *loop) observeSource(ctx context.Context, o observer, def mirror.Definition, destinationID string, full bool) observation {
	src, err := l.deps.Source(def)
	if err != nil {
		return observation{at: time.Now(), full: full, err: fmt.Errorf("open the source: %w", err)}
	}
	return o.source(ctx, src, destinationID, full)
}

func (l *loop) observer() observer {
	return observer{
		view: l.deps.View, name: l.name, timeout: l.cfg.CallTimeout,
		fresh: l.deps.Fresh != nil && l.deps.Fresh(), commanded: l.deps.Commanded != nil && l.deps.Commanded(),
		seeding: slices.Sorted(maps.Keys(l.seeding)),
	}
}

// act does what follows from an observation. Each step is isolated: its failures are counted and told, the next step runs.
func (l *loop) act(ctx context.Context, seen observation) {
	began := time.Now()
	defer l.recordStatus(ctx)
	if !l.answered(ctx, seen) || !l.cluster(ctx, seen) {
		return
	}
	if seen.full {
		l.refresh(ctx, seen)
		took := time.Since(began) + began.Sub(seen.at)
		l.metrics.duration.WithLabelValues(l.name).Observe(took.Seconds())
		l.board.update(func(s *Status) { s.RefreshedAt, s.Duration = time.Now(), took })
		return
	}
	l.groups(ctx, seen)
}

// refresh runs the steps of a full cycle in the order of SPEC §9; discovery and exclusion are part of topics.
func (l *loop) refresh(ctx context.Context, seen observation) {
	d, err := l.observer().destination(ctx, l.deps.Destination, seen)
	if err != nil {
		l.fail(StepTopics, err)
		l.settle(ctx, StepTopics)
		return
	}
	m, ok := l.deps.View.Mirror(l.name)
	if !ok {
		return
	}
	l.circles = l.lookForCircles(ctx, m, seen.topics, d)
	l.learnGuard(ctx, d)
	l.topics(ctx, seen, d)
	prepared := l.configs(ctx, seen, d)
	l.groups(ctx, seen)
	l.acls(ctx, seen, d)
	if l.guards(ctx, d) {
		l.ready(ctx, prepared)
	}
}

// answered notes whether the source is up.
func (l *loop) answered(ctx context.Context, seen observation) bool {
	if seen.err != nil && seen.destination {
		l.fail(StepCluster, seen.err)
		l.settle(ctx, StepCluster)
		return false
	}
	returned := l.down && seen.err == nil
	l.up, l.down = seen.err == nil, seen.err != nil
	message := ""
	if l.up {
		l.destinationID = seen.destinationID
	} else {
		message = seen.err.Error()
		l.fail(StepSource, seen.err)
	}
	l.board.update(func(s *Status) { s.SourceUp, s.SourceError = l.up, message })
	l.settle(ctx, StepSource)
	if returned {
		l.log.Info("source answers again")
	}
	return l.up
}
