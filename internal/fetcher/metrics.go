package fetcher

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// topicStats counts what was done for one topic of a mirror, by this process.
type topicStats struct {
	mirror, topic                                string
	fetchedBytes, producedBytes, producedRecords atomic.Uint64
	lostRecords, foreignWrites, trimFailures     atomic.Uint64
	filledOffsets                                [reasons]atomic.Uint64
	latency                                      prometheus.Observer
}

// metrics shows the pool's numbers as they are when asked. Topics without a partition here are left out.
type metrics struct {
	pool       *Pool
	registerer prometheus.Registerer
	latency    *prometheus.HistogramVec
	throttled  atomic.Int64 // ns

	mu     sync.Mutex // guards topics
	topics map[topicKey]*topicStats
}

type topicKey struct{ mirror, topic string }

var (
	topicLabels     = []string{"mirror", "topic"}
	partitionLabels = []string{"mirror", "topic", "partition"}

	descLag = prometheus.NewDesc("mirrord_partition_lag_records",
		"Offsets of the source that the destination does not have yet.", partitionLabels, nil)
	descLagSeconds = prometheus.NewDesc("mirrord_partition_lag_seconds",
		"Age of the oldest record that is not mirrored yet; 0 when level.", partitionLabels, nil)
	descOffset = prometheus.NewDesc("mirrord_partition_offset",
		"Next offset: the source's high watermark, and the destination's acknowledged log end; -1 if unknown.", append(partitionLabels[:3:3], "side"), nil)
	descFetched = prometheus.NewDesc("mirrord_fetched_bytes_total",
		"Bytes of record batches fetched from the source.", topicLabels, nil)
	descProduced = prometheus.NewDesc("mirrord_produced_bytes_total",
		"Bytes of record batches that the destination has acknowledged.", topicLabels, nil)
	descRecords = prometheus.NewDesc("mirrord_produced_records_total",
		"Records that the destination has acknowledged.", topicLabels, nil)
	descFilled = prometheus.NewDesc("mirrord_filled_offsets_total",
		"Offsets that invisible fillers have taken, by what was there at the source.", append(topicLabels[:2:2], "reason"), nil)
	descLost = prometheus.NewDesc("mirrord_lost_records_total",
		"Offsets that expired at the source before they were copied.", topicLabels, nil)
	descForeign = prometheus.NewDesc("mirrord_foreign_writes_total",
		"Times that somebody else's write was found in a mirror partition.", topicLabels, nil)
	descTrimFailures = prometheus.NewDesc("mirrord_trim_failures_total",
		"Times that the destination's log start could not be moved to the source's.", topicLabels, nil)
	descMemory = prometheus.NewDesc("mirrord_memory_bytes",
		"Bytes of records held, and their limit.", []string{"kind"}, nil)
	descThrottled = prometheus.NewDesc("mirrord_throttled_seconds_total",
		"Time that partitions have waited for the throttle.", nil, nil)
)

func newMetrics(pool *Pool, r prometheus.Registerer) *metrics {
	m := &metrics{
		pool: pool, registerer: r, topics: map[topicKey]*topicStats{},
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "mirrord_replication_latency_seconds",
			Help:    "From the source's append to the destination's acknowledgement, per batch.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"mirror"}),
	}
	if r != nil {
		r.MustRegister(m, m.latency)
	}
	return m
}

func (m *metrics) unregister() {
	if m.registerer != nil {
		m.registerer.Unregister(m)
		m.registerer.Unregister(m.latency)
	}
}

// topic finds or makes the counters of a topic.
func (m *metrics) topic(mirror, topic string) *topicStats {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := topicKey{mirror, topic}
	s := m.topics[key]
	if s == nil {
		s = &topicStats{mirror: mirror, topic: topic, latency: m.latency.WithLabelValues(mirror)}
		m.topics[key] = s
	}
	return s
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descLag, descLagSeconds, descOffset, descFetched, descProduced, descRecords, descFilled, descLost,
		descForeign, descTrimFailures, descMemory, descThrottled,
	} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(c chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	now := time.Now()
	seen := map[*topicStats]struct{}{}
	for _, p := range m.pool.allParts() {
		if p.isGone() {
			continue
		}
		r := p.report(now)
		labels := []string{r.Mirror, r.Topic, strconv.Itoa(int(r.Index))}
		gauge(descOffset, float64(r.SourceOffset), append(labels[:3:3], "source")...)
		gauge(descOffset, float64(r.DestinationOffset), append(labels[:3:3], "destination")...)
		if lag := r.Lag(); lag >= 0 {
			age := 0.0
			if !r.OldestUnmirrored.IsZero() && lag > 0 {
				age = max(0, now.Sub(r.OldestUnmirrored).Seconds())
			}
			gauge(descLag, float64(lag), labels...)
			gauge(descLagSeconds, age, labels...)
		}
		seen[p.stats] = struct{}{}
	}
	for s := range seen {
		counter(descFetched, s.fetchedBytes.Load(), s.mirror, s.topic)
		counter(descProduced, s.producedBytes.Load(), s.mirror, s.topic)
		counter(descRecords, s.producedRecords.Load(), s.mirror, s.topic)
		counter(descLost, s.lostRecords.Load(), s.mirror, s.topic)
		counter(descForeign, s.foreignWrites.Load(), s.mirror, s.topic)
		counter(descTrimFailures, s.trimFailures.Load(), s.mirror, s.topic)
		for i := range s.filledOffsets {
			counter(descFilled, s.filledOffsets[i].Load(), s.mirror, s.topic, reasonNames[i])
		}
	}
	gauge(descMemory, float64(m.pool.budget.used.Load()), "records")
	gauge(descMemory, float64(m.pool.budget.limit.Load()), "limit")
	c <- prometheus.MustNewConstMetric(descThrottled, prometheus.CounterValue, time.Duration(m.throttled.Load()).Seconds())
}
