package mmm

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
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
	finishSince time.Time // since when a promotion waits to be finished; zero: none does
	seen        glimpse
	up          bool // the source answered last time
	down        bool // it did not

	recreating    *topicSet
	destinationID string
	failures      map[Step][]error // of the running pass
	trouble       map[string]string
	created       map[string]time.Time // topics that this loop created and has not seen since, by when
	seeding       map[string]time.Time // since when a cleanup policy looks like seeding
	retention     time.Duration        // of committed offsets at the destination; 0: not known yet
	guard         guardState
	groupSaid     map[string]time.Time // when a group was last told to be skipped
	groupSkipped  map[string]bool      // by the last pass
}

func newLoop(name string, cfg Config, deps Deps, m *metrics) *loop {
	log := deps.Log.With(mirror.KeyMirror, name)
	return &loop{name: name, cfg: cfg, deps: deps, log: log, metrics: m, speaker: newSpeaker(log), recreating: &topicSet{}, created: map[string]time.Time{},
		wake: make(chan struct{}, 1), observed: make(chan observation, 1), failures: map[Step][]error{},
		trouble: map[string]string{}, seeding: map[string]time.Time{}, groupSaid: map[string]time.Time{},
		board: board{status: Status{Mirror: name, Errors: map[Step]StepError{}, Notes: map[string]string{}}}}
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
	looked := time.Time{}
	for {
		changed := l.deps.View.Changed()
		now := time.Now()
		if now.Sub(looked) >= glance {
			looked = now
			l.glance()
		}
		l.start(ctx)
		if l.finishNow() {
			l.finish(ctx)
		}
		var again <-chan struct{}
		if time.Since(looked) >= glance {
			again = changed
		}
		timer.Reset(l.pause(looked))
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
			l.nextRefresh = time.Time{}
		case <-timer.C:
		case <-again:
		case seen := <-l.observed:
			l.observing = false
			l.act(ctx, seen)
		}
	}
}

// pause is how long nothing is to be done, unless something happens. While the view was looked at only just now, it is
// looked at again a moment later, for what changed meanwhile.
func (l *loop) pause(looked time.Time) time.Duration {
	next := looked.Add(l.cfg.RefreshInterval)
	if time.Since(looked) < glance {
		next = looked.Add(glance)
	}
	if !l.observing {
		next = earlier(next, earlier(l.nextRefresh, l.nextGroups))
	}
	if !l.finishSince.IsZero() {
		next = earlier(next, later(l.nextFinish, time.Now().Add(50*time.Millisecond)))
	}
	return max(0, time.Until(next))
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
	destinationID := l.destinationID
	go func() { l.observed <- l.observe(ctx, m.Definition, destinationID, full) }()
}

// observe runs in the observer's goroutine; it only reads.
func (l *loop) observe(ctx context.Context, def mirror.Definition, destinationID string, full bool) observation {
	src, err := l.deps.Source(def)
	if err != nil {
		return observation{at: time.Now(), full: full, err: fmt.Errorf("open the source: %w", err)}
	}
	if destinationID == "" {
		destinationID, err = within(ctx, l.cfg.CallTimeout, l.deps.Destination.ID)
		if err != nil {
			return observation{at: time.Now(), full: full, err: fmt.Errorf("ask the destination for its cluster id: %w", err), destination: true}
		}
	}
	seen := l.observer().source(ctx, src, destinationID, full)
	seen.destinationID = destinationID
	return seen
}

func (l *loop) observer() observer {
	return observer{view: l.deps.View, name: l.name, timeout: l.cfg.CallTimeout}
}

// glimpse is what the loop saw in the view when it last looked, as far as a change of it makes a refresh urgent.
type glimpse struct {
	version int32
	pending int
	topics  map[string]wishSeen
}

type wishSeen struct {
	wish  mirror.State
	rearm int32
}

// glance looks for what has become urgent: an edit, a new wish, a promotion to be finished.
func (l *loop) glance() {
	m, _ := l.deps.View.Mirror(l.name)
	now := glimpse{version: m.Version, pending: len(m.PendingInclude) + len(m.PendingExclude), topics: map[string]wishSeen{}}
	urgent := now.version != l.seen.version || now.pending != l.seen.pending
	waiting := false
	for _, t := range l.deps.View.Topics(l.name) {
		seen := wishSeen{t.Wish, t.Rearm}
		now.topics[t.Name] = seen
		urgent = urgent || l.seen.topics[t.Name] != seen
		waiting = waiting || l.finishable(t)
	}
	if urgent {
		l.nextRefresh = time.Time{}
	}
	l.seen = now
	switch {
	case waiting && l.finishSince.IsZero():
		l.finishSince = time.Now()
	case !waiting:
		l.finishSince = time.Time{}
	}
}

// finishable reports whether all partitions of a topic are STOPPED and what belongs to its promotion is still to be done.
func (l *loop) finishable(t statestore.Topic) bool {
	if t.Wish != mirror.Stopped || t.Promoted {
		return false
	}
	for i := range t.Partitions {
		p, ok := l.deps.View.Partition(mirror.Partition{Mirror: l.name, TopicID: t.SourceID, Index: i})
		if !ok || p.State != mirror.Stopped {
			return false
		}
	}
	return true
}

// wantsLastWord reports whether the source's committed offsets are to be read once more before a promotion is finished.
func (l *loop) wantsLastWord() bool {
	return !l.finishSince.IsZero() && !l.down && l.observedAt.Before(l.finishSince) && time.Since(l.finishSince) < lastWord
}

// finishNow reports whether a promotion is to be finished with what is known: its last look at the source has come back,
// or is not worth waiting for.
func (l *loop) finishNow() bool {
	if l.finishSince.IsZero() || time.Now().Before(l.nextFinish) {
		return false
	}
	asked := !l.observedAt.Before(l.finishSince)
	return l.down || asked && !l.observing || time.Since(l.finishSince) >= lastWord
}

// act does what follows from an observation. Each step is isolated: its failures are counted and told, the next step runs.
func (l *loop) act(ctx context.Context, seen observation) {
	began := time.Now()
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
	l.learnGuard(ctx, d)
	l.topics(ctx, seen, d)
	l.configs(ctx, seen, d)
	l.groups(ctx, seen)
	l.acls(ctx, seen, d)
	l.guards(ctx, d)
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

// fail notes a failure of a step; settle tells it.
func (l *loop) fail(s Step, err error) {
	if err != nil {
		l.failures[s] = append(l.failures[s], err)
	}
}

// settle ends a pass of a step: its failures are counted, shown, and told when they are not what was told before.
func (l *loop) settle(ctx context.Context, s Step) {
	errs := l.failures[s]
	delete(l.failures, s)
	subject := "step " + string(s)
	if ctx.Err() != nil {
		return
	}
	if len(errs) == 0 {
		l.speaker.over(subject)
		l.board.update(func(st *Status) { delete(st.Errors, s) })
		return
	}
	l.metrics.errors.WithLabelValues(l.name, string(s)).Add(float64(len(errs)))
	first := errs[0]
	l.board.update(func(st *Status) { st.Errors[s] = StepError{time.Now(), first.Error(), len(errs)} })
	if kafka.Classify(first) == mirror.Fenced {
		return // another instance goes on
	}
	l.speaker.say(ctx, slog.LevelWarn, subject, "refresh step failed", first.Error(), "step", string(s), mirror.KeyCount, len(errs),
		mirror.KeyErr, first)
}

// put appends records; what cannot be written is a failure of StepState and is tried again by the next cycle.
func (l *loop) put(ctx context.Context, recs ...statestore.Record) error {
	if len(recs) == 0 {
		return nil
	}
	if err := l.deps.Lease(); err != nil {
		return err
	}
	if err := l.deps.Put(ctx, l.name, recs...); err != nil {
		return fmt.Errorf("write the mirror's state: %w", err)
	}
	return nil
}
