package mmm

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Manager runs the refresh of every mirror whose shard this instance owns.
type Manager struct {
	cfg     Config
	deps    Deps
	metrics *metrics

	mu    sync.Mutex // guards loops
	loops map[string]*running
}

type running struct {
	loop   *loop
	cancel context.CancelFunc
	done   chan struct{} // closed when the loop has ended
}

// NewManager makes a Manager and registers its metrics.
func NewManager(cfg Config, deps Deps) *Manager {
	return &Manager{cfg: cfg, deps: deps, metrics: newMetrics(deps.Registerer), loops: map[string]*running{}}
}

// Run starts and ends loops as ownership changes, until ctx ends; all loops have ended when it returns.
func (m *Manager) Run(ctx context.Context) error {
	defer m.stop(nil)
	const slow = 5 * time.Second // in case a change was not signalled
	ticker := time.NewTicker(slow)
	defer ticker.Stop()
	for {
		changed := m.deps.Changed()
		m.reconcile(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case <-ticker.C:
		}
	}
}

// reconcile makes the running loops those of the owned mirrors.
func (m *Manager) reconcile(ctx context.Context) {
	owned := m.deps.Owned()
	m.stop(owned)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range owned {
		if m.loops[name] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		r := &running{newLoop(name, m.cfg, m.deps, m.metrics), cancel, make(chan struct{})}
		m.loops[name] = r
		go func() {
			defer close(r.done)
			r.loop.run(ctx)
		}()
	}
}

// stop ends the loops that are not to be kept and waits for them.
func (m *Manager) stop(keep []string) {
	m.mu.Lock()
	var ending []*running
	for name, r := range m.loops {
		if !slices.Contains(keep, name) {
			r.cancel()
			ending = append(ending, r)
			delete(m.loops, name)
		}
	}
	m.mu.Unlock()
	for _, r := range ending {
		<-r.done
	}
}

// Wake makes a mirror's refresh due now.
func (m *Manager) Wake(mirrorName string) {
	if r := m.of(mirrorName); r != nil {
		select {
		case r.loop.wake <- struct{}{}:
		default: // one is due already
		}
	}
}

func (m *Manager) of(mirrorName string) *running {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.loops[mirrorName]
}

// Statuses are the statuses of all mirrors that this instance refreshes, sorted by name.
func (m *Manager) Statuses() []Status {
	m.mu.Lock()
	loops := maps.Clone(m.loops)
	m.mu.Unlock()
	all := make([]Status, 0, len(loops))
	for _, name := range slices.Sorted(maps.Keys(loops)) {
		all = append(all, loops[name].loop.board.read())
	}
	return all
}
