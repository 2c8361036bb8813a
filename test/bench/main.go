// Bench runs mirrord and MirrorMaker 2 side by side: the same brokers, the same topics, one run. It prints ratios; an
// absolute figure of it means nothing on another machine.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mirrord/test/e2e"
)

// workload is a backlog to copy. A GB is 10^9 bytes of uncompressed record values, for every tool.
type workload struct {
	name           string
	records, size  int
	codec          string
	batch          int // most bytes of a source batch before compression
	mm2Codec       string
	minRate, maxCP float64 // bars of the contract: throughput ratio at least, 1/CPU ratio at least
	minShare       int     // and per cent of the destination's own limit at least
}

var workloads = []workload{
	{"big", 1_500_000, 1024, "lz4", 900_000, "lz4", 3.5, 8, 75},
	{"medium", 750_000, 1024, "lz4", 16_384, "lz4", 2.5, 7, 95},
	{"small", 1_500_000, 100, "none", 1_200, "none", 6, 18, 95},
}

type bench struct {
	dir, mirrord, jars string
	s, d               *e2e.Cluster
	runs               int
}

func main() {
	mirrord := flag.String("mirrord", "bin/mirrord", "the binary")
	only := flag.String("only", "", "workloads to run, comma-separated: big,medium,small,live,idle; default all")
	runs := flag.Int("runs", 2, "runs of each tool and workload; the best counts")
	flag.Parse()
	if err := run(*mirrord, *only, *runs); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(mirrord, only string, runs int) error {
	bin, err := filepath.Abs(mirrord)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mirrord-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{dir: dir, mirrord: bin, runs: runs}
	if b.jars, err = e2e.Jars("4.3.1"); err != nil {
		return err
	}
	node := e2e.Options{Heap: "1g", Server: true}
	if b.s, err = e2e.NewCluster(filepath.Join(dir, "s"), node); err != nil {
		return err
	}
	defer b.s.Close()
	if b.d, err = e2e.NewCluster(filepath.Join(dir, "d"), node); err != nil {
		return err
	}
	defer b.d.Close()
	chosen := func(name string) bool { return only == "" || strings.Contains(","+only+",", ","+name+",") }
	for _, w := range workloads {
		if chosen(w.name) {
			if err := b.backlog(w); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	if chosen("live") {
		if err := b.live(); err != nil {
			return fmt.Errorf("live: %w", err)
		}
	}
	if chosen("idle") {
		if err := b.idle(); err != nil {
			return fmt.Errorf("idle: %w", err)
		}
	}
	return nil
}

// backlog copies one topic with each tool in turn and prints the rows and their ratios.
func (b *bench) backlog(w workload) error {
	fmt.Printf("\n%s: %d records of %d B, %s, batches of %d B, 8 partitions\n", w.name, w.records, w.size, w.codec, w.batch)
	if err := load(b.s, w); err != nil {
		return err
	}
	if _, err := b.measure(b.mirrordTool(), w); err != nil { // not counted: it warms the brokers up for everybody
		return fmt.Errorf("warm up: %w", err)
	}
	best := map[string]result{}
	for range b.runs {
		for _, tool := range []tool{b.mirrordTool(), b.mm2(w, 1), b.mm2(w, 4)} {
			r, err := b.measure(tool, w)
			if err != nil {
				return fmt.Errorf("%s: %w", tool.name, err)
			}
			fmt.Printf("  %-12s %s\n", tool.name, r)
			if prev, ok := best[tool.name]; !ok || r.toolPerGB < prev.toolPerGB {
				best[tool.name] = r
			}
		}
	}
	b.compare(w, best)
	limit, err := b.limit(w)
	if err != nil {
		return err
	}
	fmt.Printf("  the destination takes the same batches from memory at %.0f MB/s: mirrord reaches %.0f %% (bar %d)\n", limit, 100*best["mirrord"].mbPerS/limit, w.minShare)
	return nil
}

// compare holds mirrord's best run against MirrorMaker's better one.
func (b *bench) compare(w workload, best map[string]result) {
	ours, mm2, other := best["mirrord"], best["mm2-tuned-1"], best["mm2-tuned-4"]
	mm2.mbPerS = max(mm2.mbPerS, other.mbPerS)
	mm2.toolPerGB, mm2.allPerGB, mm2.peakMiB = min(mm2.toolPerGB, other.toolPerGB), min(mm2.allPerGB, other.allPerGB), min(mm2.peakMiB, other.peakMiB)
	fmt.Printf("  ratios: throughput %.1f× (bar %.1f) · tool CPU 1/%.1f (bar 1/%.0f) · all CPU 1/%.1f (bar 1/3.5) · peak memory 1/%.1f (bar 1/5)\n",
		ours.mbPerS/mm2.mbPerS, w.minRate, mm2.toolPerGB/ours.toolPerGB, w.maxCP, mm2.allPerGB/ours.allPerGB, mm2.peakMiB/ours.peakMiB)
}

const pollInterval = 100 * time.Millisecond
