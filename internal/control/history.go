package control

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// History is sampled this often and keeps this much, for the console's charts.
const (
	sampleEvery = 10 * time.Second
	keptSamples = 360 // an hour
)

// Sample is a mirror at one moment.
type Sample struct {
	At         time.Time      `json:"at"`
	Lag        int64          `json:"lag"`        // records, all partitions together
	LagSeconds float64        `json:"lagSeconds"` // of the partition that is furthest behind
	Mirrored   int64          `json:"mirrored"`   // sum of destination offsets; its slope is records/s
	States     map[string]int `json:"states"`
}

// History keeps the last hour of each mirror. It is safe for concurrent use.
type History struct {
	mu      sync.Mutex
	samples map[string][]Sample
}

// Of gives a mirror's samples, oldest first.
func (h *History) Of(mirrorName string) []Sample {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]Sample{}, h.samples[mirrorName]...)
}

// Totals sums up the partitions of all mirrors by state, as of the last sample.
func (h *History) Totals() (mirrors int, states map[string]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	states = map[string]int{}
	for _, samples := range h.samples {
		for state, n := range samples[len(samples)-1].States {
			states[state] += n
		}
	}
	return len(h.samples), states
}

// Watch samples the view until ctx ends.
func (h *History) Watch(ctx context.Context, v *statestore.View) error {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		h.take(v, time.Now())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (h *History) take(v *statestore.View, at time.Time) {
	taken := map[string]Sample{}
	for _, m := range v.Mirrors() {
		taken[m.Name] = sampleOf(v, m.Name, at)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.samples == nil {
		h.samples = map[string][]Sample{}
	}
	maps.DeleteFunc(h.samples, func(name string, _ []Sample) bool {
		_, ok := taken[name]
		return !ok
	})
	for name, s := range taken {
		all := append(h.samples[name], s)
		if len(all) > keptSamples {
			all = slices.Delete(all, 0, len(all)-keptSamples)
		}
		h.samples[name] = all
	}
}

func sampleOf(v *statestore.View, mirrorName string, at time.Time) Sample {
	s := Sample{At: at, States: map[string]int{}}
	for _, p := range v.Partitions(mirrorName) {
		s.States[p.State.String()]++
		pos, _, ok := v.Report(p.Partition)
		if !ok || pos.DestinationOffset < 0 {
			continue
		}
		s.Mirrored += pos.DestinationOffset
		if p.State != mirror.Stopped && pos.SourceOffset >= 0 {
			s.Lag += max(0, pos.SourceOffset-pos.DestinationOffset)
			s.LagSeconds = max(s.LagSeconds, float64(pos.LagMillis)/1000)
		}
	}
	return s
}
