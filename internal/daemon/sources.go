package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// sourceGrace is how long a connection that no definition asks for any more is kept for those who still finish with it.
const sourceGrace = 30 * time.Second

// sources holds the connections to source clusters, one per mirror, shared by all who work for it. A definition with
// another connection gets a new one; settings that are not about the connection keep it. It is safe for concurrent use.
type sources struct {
	open func(mirrorName string, c mirror.Connection) (*kafka.Cluster, func(), error)

	mu      sync.Mutex
	closed  bool
	entries map[string][]*source // by mirror; more than one only while the connection is being changed
}

type source struct {
	mirror     string
	connection mirror.Connection
	cluster    *kafka.Cluster
	close      func()
	asked      time.Time
	given      bool // up: a new one has its place
}

// errClosing is what late comers get during shutdown.
var errClosing = mirror.Errorf(mirror.Retriable, "this instance is stopping")

// get gives the cluster of a definition. It does not touch the network.
func (s *sources) get(d mirror.Definition) (*kafka.Cluster, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosing
	}
	for _, e := range s.entries[d.Name] {
		if e.connection.Equal(d.Source) && !e.given {
			e.asked = time.Now()
			return e.cluster, nil
		}
	}
	cluster, closeIt, err := s.open(d.Name, d.Source)
	if err != nil {
		return nil, err
	}
	if s.entries == nil {
		s.entries = map[string][]*source{}
	}
	s.entries[d.Name] = append(s.entries[d.Name], &source{mirror: d.Name, connection: d.Source, cluster: cluster, close: closeIt, asked: time.Now()})
	return cluster, nil
}

// renew gives up the connection of a definition: whoever asks next gets a new one, which begins at the address. Those who
// work with the old one may finish.
func (s *sources) renew(d mirror.Definition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries[d.Name] {
		e.given = e.given || e.connection.Equal(d.Source)
	}
}

// meant gives the cluster of a mirror after making sure that it is the one that is meant. Another one is asked for by the
// address once more: brokers that were named by the wrong cluster answer for it as long as they live.
func (s *sources) meant(ctx context.Context, m *mirror.Resolved) (*kafka.Cluster, error) {
	want := cmp.Or(m.SourceClusterID, m.ClusterID)
	for renewed := false; ; renewed = true {
		cluster, err := s.get(m.Definition)
		if err != nil || want == "" {
			return cluster, err
		}
		ctx, cancel := context.WithTimeout(ctx, oppositeTimeout)
		id, err := cluster.ID(ctx)
		cancel()
		switch {
		case err != nil:
			return nil, fmt.Errorf("ask the source for its id: %w", err)
		case id == want || id == "":
			return cluster, nil
		case renewed:
			return nil, mirror.OtherCluster(id, want)
		}
		s.renew(m.Definition)
	}
}

// list gives the newest connection of each mirror, by name.
func (s *sources) list() []source {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []source
	for _, of := range s.entries {
		out = append(out, *of[len(of)-1])
	}
	slices.SortFunc(out, func(a, b source) int { return cmp.Compare(a.mirror, b.mirror) })
	return out
}

// prune closes what no definition asks for and nobody has asked for lately.
func (s *sources) prune(now time.Time, current func(mirrorName string) (mirror.Connection, bool)) {
	for _, e := range s.unused(now, current) {
		e.close()
	}
}

func (s *sources) unused(now time.Time, current func(string) (mirror.Connection, bool)) (out []*source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, of := range s.entries {
		want, exists := current(name)
		keep := of[:0]
		for _, e := range of {
			if exists && e.connection.Equal(want) && !e.given || now.Sub(e.asked) < sourceGrace {
				keep = append(keep, e)
			} else {
				out = append(out, e)
			}
		}
		if s.entries[name] = keep; len(keep) == 0 {
			delete(s.entries, name)
		}
	}
	return out
}

// closeAll ends all connections and refuses new ones.
func (s *sources) closeAll() error {
	s.mu.Lock()
	entries := s.entries
	s.entries, s.closed = nil, true
	s.mu.Unlock()
	for _, of := range entries {
		for _, e := range of {
			e.close()
		}
	}
	return nil
}

// watch prunes now and then until ctx ends.
func (s *sources) watch(ctx context.Context, view *statestore.View) error {
	tick := time.NewTicker(sourceGrace / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		s.prune(time.Now(), func(name string) (mirror.Connection, bool) {
			m, ok := view.Mirror(name)
			return m.Source, ok
		})
	}
}
