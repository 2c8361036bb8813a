package coordinator

import (
	"fmt"
	"testing"
	"time"

	"mirrord/internal/mirror"
)

func TestMetricsFollowOwnership(t *testing.T) {
	b := newBench(t)
	one := b.start("one")
	one.owns(20*time.Second, all)
	one.mirrored("east", 2, "orders")
	b.eventually(5*time.Second, func() string {
		if n := one.series("mirrord_partition_state"); n != 2*len(mirror.States()) {
			return fmt.Sprintf("%d series of mirrord_partition_state", n)
		}
		return ""
	})
	if n := one.series("mirrord_partition_failures_total"); n != len(mirror.Kinds()) {
		t.Errorf("%d kinds of failures exist from the start", n)
	}
	one.stop()
	if n := one.series("mirrord_partition_state"); n != 0 {
		t.Errorf("%d series without ownership", n)
	}
}

// series counts the series of a metric.
func (i *instance) series(name string) int {
	i.b.Helper()
	families, err := i.reg.Gather()
	if err != nil {
		i.b.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return len(f.GetMetric())
		}
	}
	return 0
}
