package statestore

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	appends  *prometheus.CounterVec
	duration prometheus.Histogram
}

// newMetrics registers the metrics of a store; reg may be nil.
func newMetrics(reg prometheus.Registerer, v *View) *metrics {
	f := promauto.With(reg)
	m := &metrics{
		appends: f.NewCounterVec(prometheus.CounterOpts{
			Name: "mirrord_state_transactions_total",
			Help: "Transactions on the state topic, by outcome.",
		}, []string{"outcome"}),
		duration: f.NewHistogram(prometheus.HistogramOpts{
			Name:                        "mirrord_state_transaction_duration_seconds",
			Help:                        "Time that a transaction on the state topic took, from its first record to its commit.",
			NativeHistogramBucketFactor: 1.1,
		}),
	}
	m.appends.WithLabelValues("committed")
	m.appends.WithLabelValues("aborted")
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mirrord_state_stopped_shards",
		Help: "Shards of the state topic that stopped at a record which cannot be read.",
	}, func() float64 { return float64(len(v.BadRecords())) })
	f.NewCounterFunc(prometheus.CounterOpts{
		Name: "mirrord_state_unknown_records_total",
		Help: "Records of the state topic that were skipped because their type is unknown.",
	}, func() float64 { return float64(v.Unknown()) })
	return m
}

func (m *metrics) observe(took time.Duration, err error) {
	if err != nil {
		m.appends.WithLabelValues("aborted").Inc()
		return
	}
	m.appends.WithLabelValues("committed").Inc()
	m.duration.Observe(took.Seconds())
}
