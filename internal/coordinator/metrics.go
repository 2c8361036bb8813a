package coordinator

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"mirrord/internal/mirror"
)

// metrics of a coordinator. States are collected from a snapshot, so that the series of a partition end with its
// ownership.
type metrics struct {
	shards   prometheus.Gauge
	failures *prometheus.CounterVec
	states   *prometheus.Desc
	owned    atomic.Pointer[[]stateRow]
}

// stateRow is one owned partition.
type stateRow struct {
	mirror, topic string
	partition     int32
	state         mirror.State
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		shards: f.NewGauge(prometheus.GaugeOpts{
			Name: "mirrord_shards_owned",
			Help: "Partitions of the state topic that this instance coordinates.",
		}),
		failures: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mirrord_partition_failures_total",
			Help: "Failures of partitions, by kind.",
		}, []string{"kind"}),
		states: prometheus.NewDesc("mirrord_partition_state", "1 for the state that a partition is in, 0 for the others.",
			[]string{"mirror", "topic", "partition", "state"}, nil),
	}
	for _, k := range mirror.Kinds() {
		m.failures.WithLabelValues(k.String())
	}
	if reg != nil {
		reg.MustRegister(m)
	}
	return m
}

func (m *metrics) failed(k mirror.Kind) { m.failures.WithLabelValues(k.String()).Inc() }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(c chan<- *prometheus.Desc) { c <- m.states }

// Collect implements prometheus.Collector.
func (m *metrics) Collect(c chan<- prometheus.Metric) {
	rows := m.owned.Load()
	if rows == nil {
		return
	}
	for _, r := range *rows {
		for _, s := range mirror.States() {
			value := 0.0
			if s == r.state {
				value = 1
			}
			c <- prometheus.MustNewConstMetric(m.states, prometheus.GaugeValue, value,
				r.mirror, r.topic, strconv.Itoa(int(r.partition)), s.String())
		}
	}
}

// publish shows others what this instance owns now, and sets how often the data path is to be looked at.
func (r *runner) publish(now time.Time) {
	var rows []stateRow
	driven, allDriven := 0, len(r.shards) == len(r.assigned)
	r.pace, r.young = pollIdle, false
	for _, s := range r.shards {
		if s.phase == releasing {
			r.pace = pollDraining
		}
		if s.phase != driving {
			allDriven = false
			continue
		}
		driven++
		for p, t := range s.parts {
			state, ok := r.view.Partition(p)
			if !ok {
				state.State = mirror.Unknown
			}
			r.pace = min(r.pace, paceOf(state))
			if state.State != mirror.Stopped && now.Sub(t.since) < youth {
				r.pace, r.young = min(r.pace, pollSettling), true
			}
			rows = append(rows, stateRow{p.Mirror, t.topic, p.Index, state.State})
		}
	}
	r.metrics.owned.Store(&rows)
	r.metrics.shards.Set(float64(driven))
	r.joined.Store(r.leased.Load() && allDriven && !r.owesMirrors())
}
