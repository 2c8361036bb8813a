package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"mirrord/internal/control"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

const (
	lookInterval = 2 * time.Second
	lookTimeout  = 1400 * time.Millisecond // /readyz answers within 2 s
	freshFor     = 500 * time.Millisecond  // an answer that young serves again: /readyz may be asked by many
)

// asker is a cluster that can be asked for a sign of life.
type asker interface {
	ID(ctx context.Context) (string, error)
	Bootstrap() []string
}

// health looks at the clusters now and then and tells metrics, log, service manager and coordinator about it.
type health struct {
	destination asker
	sources     func() map[string]asker // by mirror
	sourceUp    func(mirrorName string) // a source answers again
	status      func(control.Readiness) // shown by the service manager
	ready       func(ctx context.Context) control.Readiness
	metrics     *metrics
	log         *slog.Logger

	mu   sync.Mutex
	last *look
	up   map[string]control.Contact // of sources, by mirror
}

// look is one question to the destination, shared by all who ask meanwhile.
type look struct {
	done    chan struct{} // closed when contact is set
	at      time.Time
	contact control.Contact
}

// run looks at all clusters every two seconds until ctx ends.
func (h *health) run(ctx context.Context) error {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	before := control.Contact{Up: true} // the first failure is news
	for {
		before = h.tellDestination(before, h.destinationNow(ctx))
		h.lookAtSources(ctx)
		h.status(h.ready(ctx))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (h *health) tellDestination(before, now control.Contact) control.Contact {
	h.metrics.destinationUp.Set(gauge(now.Up))
	switch {
	case before.Up && !now.Up:
		h.log.Warn("destination became unreachable", mirror.KeyErr, now.Error)
	case !before.Up && now.Up:
		h.log.Info("destination became reachable")
	}
	return now
}

func gauge(up bool) float64 {
	if up {
		return 1
	}
	return 0
}

// destinationNow asks the destination, unless somebody is asking or has just done so.
func (h *health) destinationNow(ctx context.Context) control.Contact {
	h.mu.Lock()
	current := h.last
	if current == nil || closed(current.done) && time.Since(current.at) > freshFor {
		current = &look{done: make(chan struct{})}
		h.last = current
		go func() {
			current.contact = ask(context.WithoutCancel(ctx), h.destination)
			current.at = time.Now()
			close(current.done)
		}()
	}
	h.mu.Unlock()
	select {
	case <-current.done:
		return current.contact
	case <-ctx.Done():
		return control.Contact{Error: "no answer yet from " + strings.Join(h.destination.Bootstrap(), ",")}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// ask is bounded by lookTimeout. Errors name the address.
func ask(ctx context.Context, a asker) control.Contact {
	ctx, cancel := context.WithTimeoutCause(ctx, lookTimeout, fmt.Errorf("no answer within %v", lookTimeout))
	defer cancel()
	_, err := a.ID(ctx)
	if err == nil {
		return control.Contact{Up: true}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return control.Contact{Error: fmt.Sprintf("%s: %v", strings.Join(a.Bootstrap(), ","), err)}
}

// lookAtSources asks all sources at once.
func (h *health) lookAtSources(ctx context.Context) {
	asked := h.sources()
	answers := make(map[string]control.Contact, len(asked))
	var all sync.WaitGroup
	var mu sync.Mutex
	for name, a := range asked {
		all.Go(func() {
			contact := ask(ctx, a)
			contact.Mirror = name
			mu.Lock()
			defer mu.Unlock()
			answers[name] = contact
		})
	}
	all.Wait()
	if ctx.Err() == nil {
		h.tellSources(answers)
	}
}

func (h *health) tellSources(now map[string]control.Contact) {
	h.mu.Lock()
	before := h.up
	h.up = now
	h.mu.Unlock()
	for name := range before {
		if _, ok := now[name]; !ok {
			h.metrics.sourceUp.DeleteLabelValues(name)
		}
	}
	for name, contact := range now {
		h.metrics.sourceUp.WithLabelValues(name).Set(gauge(contact.Up))
		was, known := before[name]
		switch {
		case !contact.Up && (!known || was.Up):
			h.log.Warn("source became unreachable", mirror.KeyMirror, name, mirror.KeyErr, contact.Error)
		case contact.Up && known && !was.Up:
			h.log.Info("source became reachable", mirror.KeyMirror, name)
			h.sourceUp(name)
		}
	}
}

// sourcesSeen is what came of asking the sources last, by mirror.
func (h *health) sourcesSeen() []control.Contact {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := []control.Contact{}
	for _, name := range sortedKeys(h.up) {
		out = append(out, h.up[name])
	}
	return out
}

// membership is what readiness needs to know of the coordinator.
type membership struct {
	joined    func() bool
	ownsShard func(shard int32) bool
	view      *statestore.View
	problem   func() error // why the internal topics cannot be served
	refused   func() error // why the group does not take this instance
}

// readiness judges whether this instance can do its work now.
func readiness(ctx context.Context, h *health, m membership, r control.Readiness) control.Readiness {
	r.Destination = h.destinationNow(ctx)
	r.Sources = h.sourcesSeen()
	r.Joined = m.joined()
	for shard := range m.view.Shards() {
		if bad, ok := m.view.BadRecord(shard); ok {
			r.Stopped = append(r.Stopped, fmt.Sprintf("shard %d %s; %s", shard, bad, statestore.BadRecordFix))
		}
		if m.ownsShard(shard) {
			r.ShardsOwned++
			if m.view.Loaded(shard) {
				r.ShardsLoaded++
			}
		}
	}
	r.WaitingFor = waitingFor(r, m)
	r.Ready = r.WaitingFor == ""
	return r
}

func waitingFor(r control.Readiness, m membership) string {
	switch problem, refused := m.problem(), m.refused(); {
	case !r.Destination.Up:
		return "the destination: " + r.Destination.Error
	case problem != nil:
		return "the internal topics: " + problem.Error()
	case m.view.Shards() == 0:
		return "the internal topics"
	case refused != nil:
		return "the group: " + refused.Error()
	case !r.Joined:
		return "the group to assign work and its shards to load"
	case r.ShardsLoaded < r.ShardsOwned:
		return fmt.Sprintf("%d of %d shards to load", r.ShardsOwned-r.ShardsLoaded, r.ShardsOwned)
	}
	return ""
}

// statusLine is what systemctl status shows.
func statusLine(r control.Readiness, mirrors int, states map[string]int) string {
	if !r.Ready {
		return "waiting for " + r.WaitingFor
	}
	partitions := 0
	for _, n := range states {
		partitions += n
	}
	line := fmt.Sprintf("%s, %s, %d of them failed; %s owned", mirror.Count(mirrors, "mirror"), mirror.Count(partitions, "partition"),
		states[mirror.Failed.String()], mirror.Count(r.ShardsOwned, "shard"))
	for _, s := range r.Sources {
		if !s.Up {
			line += "; source of " + s.Mirror + " is unreachable"
		}
	}
	return line
}
