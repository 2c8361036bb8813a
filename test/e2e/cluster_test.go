package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The harness itself: a node that is killed, frozen and restarted keeps its address and its data, and Identical tells
// equal from different.
func TestHarness(t *testing.T) {
	s, d := StartCluster(t, Options{}), StartCluster(t, Options{})
	for _, c := range []*Cluster{s, d} {
		c.Topic(t, "equal", 2)
		c.Topic(t, "other", 1)
	}
	now := time.Now()
	stamped := func(r []*kgo.Record) []*kgo.Record {
		for _, rec := range r {
			rec.Timestamp = now
		}
		return r
	}
	for _, c := range []*Cluster{s, d} {
		c.Send(t, nil, stamped(Numbered("equal", 1, 0, 100))...)
	}
	s.Send(t, nil, stamped(Numbered("other", 0, 0, 10))...)
	d.Send(t, nil, stamped(Numbered("other", 0, 1, 10))...)
	Identical(t, s, d, "equal")
	logs, err := s.Logs(context.Background(), "other")
	must(t, err)
	if identical(s, d, "other", 0, logs[0]) == nil {
		t.Error("different records are called identical")
	}
	d.Kill(t, 1)
	d.Launch(t, 1)
	d.AwaitUp(t)
	d.Freeze(t, 1)
	d.Thaw(t, 1)
	Identical(t, s, d, "equal")
}
