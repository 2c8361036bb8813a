package fetcher

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// source is a mirror's side of the pool: where it fetches from, its threads, its limits.
type source struct {
	pool     *Pool
	name     string
	mirror   atomic.Pointer[mirror.Resolved]
	topology *topology
	throttle throttle

	mu      sync.Mutex // guards what follows
	threads map[threadKey]*thread
	lost    []*part // without a thread: their leaders are to be found
	routing bool
	since   time.Time // of the outage; zero: none
}

func newSource(pool *Pool, m *mirror.Resolved) *source {
	s := &source{pool: pool, name: m.Name, topology: newTopology(), threads: map[threadKey]*thread{}}
	s.set(m)
	return s
}

func (s *source) set(m *mirror.Resolved) {
	s.mirror.Store(m)
	s.throttle.set(m.Throttle)
}

func (s *source) cluster() (*kafka.Cluster, error) { return s.pool.deps.Source(s.mirror.Load()) }

// answeredBy reports whether a cluster is the one that is meant, as far as it tells its id.
func (s *source) answeredBy(ctx context.Context, cluster *kafka.Cluster) bool {
	m := s.mirror.Load()
	want := cmp.Or(m.SourceClusterID, m.ClusterID)
	if want == "" {
		return true
	}
	id, err := cluster.ID(ctx)
	return err == nil && (id == "" || id == want)
}

func (s *source) exact() bool { return s.mirror.Load().TransactionsMode == mirror.Exact }

// bound is the offset that a fetch can reach.
func (s *source) bound(f *kafka.FetchedPartition) int64 {
	if !s.exact() && f.LastStable >= 0 {
		return f.LastStable
	}
	return f.HighWatermark
}

// downBy notes that a broker does not answer; one line per outage.
func (s *source) downBy(broker int32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		s.since = time.Now()
		s.pool.log.Warn("source stopped answering", mirror.KeyMirror, s.name, mirror.KeyBroker, broker, mirror.KeyErr, err)
	}
}

// up notes that a broker has answered.
func (s *source) up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.since.IsZero() {
		s.pool.log.Info("source answers again", mirror.KeyMirror, s.name, mirror.KeyDuration, time.Since(s.since).Round(time.Millisecond))
		s.since = time.Time{}
	}
}

// attrs are log attributes that name the partition.
func (p *part) attrs(more ...any) []any {
	return append([]any{mirror.KeyMirror, p.key.Mirror, mirror.KeyTopic, p.topic, mirror.KeyPartition, p.key.Index}, more...)
}

func keys[K comparable, V any](m map[K]V) []K {
	ks := make([]K, 0, len(m))
	for k := range m {
		ks = append(ks, k)
	}
	return ks
}
