package daemon

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

// metrics are the daemon's own.
type metrics struct {
	sourceUp      *prometheus.GaugeVec
	destinationUp prometheus.Gauge
	reloaded      prometheus.Gauge
	reloadedAt    prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer, version string) *metrics {
	m := &metrics{
		sourceUp: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mirrord_source_up",
			Help: "Whether the source cluster of a mirror answered when last asked (1) or not (0).",
		}, []string{"mirror"}),
		destinationUp: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mirrord_destination_up",
			Help: "Whether the destination cluster answered when last asked (1) or not (0).",
		}),
		reloaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mirrord_config_reload_success",
			Help: "Whether the configuration file was good when last read (1) or not, so that the one before is in use (0).",
		}),
		reloadedAt: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "mirrord_config_reload_timestamp_seconds",
			Help: "When the configuration in use was read.",
		}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "mirrord_build_info", Help: "Always 1; the version is a label.",
		ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	m.reloaded.Set(1)
	m.reloadedAt.SetToCurrentTime()
	reg.MustRegister(m.sourceUp, m.destinationUp, m.reloaded, m.reloadedAt, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// gatherer joins the daemon's registry with one registry per cluster connection: those come and go, and client metrics
// of two connections have the same names and differ by the label cluster only. It is safe for concurrent use.
type gatherer struct {
	main *prometheus.Registry

	mu      sync.Mutex
	clients map[*prometheus.Registry]bool
}

func newGatherer() *gatherer {
	return &gatherer{main: prometheus.NewRegistry(), clients: map[*prometheus.Registry]bool{}}
}

// client makes the registry of one connection, and what removes it with all its series.
func (g *gatherer) client(cluster string) (reg prometheus.Registerer, remove func()) {
	own := prometheus.NewRegistry()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.clients[own] = true
	return prometheus.WrapRegistererWith(prometheus.Labels{"cluster": cluster}, own), func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.clients, own)
	}
}

// Gather implements prometheus.Gatherer.
func (g *gatherer) Gather() ([]*dto.MetricFamily, error) {
	all := prometheus.Gatherers{g.main}
	g.mu.Lock()
	for c := range g.clients {
		all = append(all, c)
	}
	g.mu.Unlock()
	return all.Gather()
}
