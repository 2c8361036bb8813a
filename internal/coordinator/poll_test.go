package coordinator

import (
	"testing"
	"time"

	"mirrord/internal/mirror"
)

// askedPath counts how often positions are asked for.
type askedPath struct {
	moved int64
	lag   time.Time
	asked int
}

func (p *askedPath) Reconcile([]mirror.Target) {}
func (p *askedPath) Moved() int64              { return p.moved }
func (p *askedPath) Positions() []mirror.PositionReport {
	p.asked++
	return []mirror.PositionReport{{OldestUnmirrored: p.lag}}
}

// While nothing moves and nothing is behind, thousands of partitions are not asked where they are.
func TestPositionsAreAskedForOnlyWhenTheyMove(t *testing.T) {
	path := &askedPath{}
	r := newRunner(&Coordinator{deps: Deps{DataPath: path}})
	r.shards[0], r.pace = &shard{}, pollIdle
	now := time.Now()
	for _, step := range []struct {
		what   string
		before func()
		asks   bool
	}{
		{"the first time", func() {}, true},
		{"nothing has moved", func() {}, false},
		{"something has moved", func() { path.moved++ }, true},
		{"nothing again", func() {}, false},
		{"a partition falls behind", func() { path.moved++; path.lag = now }, true},
		{"its lag grows older", func() {}, true},
		{"it catches up", func() { path.moved++; path.lag = time.Time{} }, true},
		{"level", func() {}, false},
		{"somebody waits for a change", func() { r.pace = pollSettling }, true},
		{"nobody waits", func() { r.pace = pollIdle }, false},
		{"what was reported was not written", func() { r.moved = -1 }, true},
	} {
		step.before()
		asked := path.asked
		now = now.Add(pollIdle)
		r.poll(now)
		if got := path.asked > asked; got != step.asks {
			t.Errorf("%s: asked %v, want %v", step.what, got, step.asks)
		}
	}
}
