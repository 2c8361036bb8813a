package mmm

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Step is one part of a cycle. The values are metric labels.
type Step string

// The steps, in the order of a cycle.
const (
	StepSource      Step = "source"
	StepCluster     Step = "cluster"
	StepTopics      Step = "topics"
	StepPartitions  Step = "partitions"
	StepConfigs     Step = "configs"
	StepGroups      Step = "groups"
	StepShareGroups Step = "share_groups"
	StepACLs        Step = "acls"
	StepGuard       Step = "guard"
	StepFinish      Step = "finish"
	StepState       Step = "state" // writing __mirror_state
)

// Steps lists all steps.
func Steps() []Step {
	return []Step{
		StepSource, StepCluster, StepTopics, StepPartitions, StepConfigs, StepGroups, StepShareGroups, StepACLs,
		StepGuard, StepFinish, StepState,
	}
}

// Statuses of a group's offsets, as stored and shown.
const (
	StatusSynced  = "synced"
	StatusClamped = "clamped"
	StatusSkipped = "skipped"
	StatusFailed  = "failed"
)

var statuses = []string{StatusSynced, StatusClamped, StatusSkipped, StatusFailed}

type metrics struct {
	duration *prometheus.HistogramVec
	errors   *prometheus.CounterVec
	groups   *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "mirrord_refresh_duration_seconds",
			Help: "Time that a full metadata refresh took.", Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 10),
		}, []string{"mirror"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mirrord_refresh_errors_total",
			Help: "Failures of a metadata refresh by step; each failed topic, group or ACL counts.",
		}, []string{"mirror", "step"}),
		groups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "mirrord_group_sync_total",
			Help: "Groups whose offsets were looked at, by the outcome of the pass.",
		}, []string{"mirror", "status"}),
	}
	if r != nil {
		r.MustRegister(m.duration, m.errors, m.groups)
	}
	return m
}

// begin makes the counters of a mirror exist at 0.
func (m *metrics) begin(mirrorName string) {
	m.duration.WithLabelValues(mirrorName)
	for _, s := range Steps() {
		m.errors.WithLabelValues(mirrorName, string(s))
	}
	for _, s := range statuses {
		m.groups.WithLabelValues(mirrorName, s)
	}
}

// end removes the series of a mirror that is not owned any more.
func (m *metrics) end(mirrorName string) {
	of := prometheus.Labels{"mirror": mirrorName}
	m.duration.DeletePartialMatch(of)
	m.errors.DeletePartialMatch(of)
	m.groups.DeletePartialMatch(of)
}
