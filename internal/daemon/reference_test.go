//go:generate go test . -run TestMetricsReferenceIsCurrentAndClean -update
package daemon

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

const referenceHead = `# Metrics

Served at ` + "`/metrics`" + `. This page is made by ` + "`go test ./internal/daemon -update`" + ` from what a running instance shows. Beside these
there are those of the Go runtime (` + "`go_`" + `), of the process (` + "`process_`" + `) and of the Kafka clients
(` + "`mirrord_kafka_client_`" + `, by cluster and broker). Series of a partition are shown by the instance that owns it, and vanish
with the ownership. Counters exist at 0 from the start.

| metric | type | labels | meaning |
|---|---|---|---|
`

func reference(families []*dto.MetricFamily) string {
	var b strings.Builder
	b.WriteString(referenceHead)
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "mirrord_") || strings.HasPrefix(f.GetName(), "mirrord_kafka_client_") {
			continue
		}
		var labels []string
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains(labels, "`"+l.GetName()+"`") {
					labels = append(labels, "`"+l.GetName()+"`")
				}
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), f.GetHelp())
	}
	return b.String()
}

func TestMetricsReferenceIsCurrentAndClean(t *testing.T) {
	src, dst := startFake(t, "src"), startFake(t, "dst")
	src.create(t, "orders", 1)
	src.produce(t, "orders", 5)
	in := launch(t, configFile(t, dst.addr(), mirrorOf(src.addr(), "orders")))
	eventually(t, "orders is mirrored", func() bool { return dst.end(t, "orders") == 5 })
	const path = "../../docs/metrics.md"
	if *update {
		eventually(t, "the positions are shown", func() bool { return in.metric(t, "mirrord_partition_lag_records") == "0" })
		families, err := in.gatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(reference(families)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	eventually(t, "docs/metrics.md is what an instance shows (go test ./internal/daemon -update)", func() bool {
		families, err := in.gatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got = reference(families)
		return got == string(want)
	})
	families, err := in.gatherer.main.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
