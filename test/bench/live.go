package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"mirrord/test/e2e"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	liveRate, liveSize, liveParts = 2000, 512, 100
	liveWarm, liveCounted         = 15 * time.Second, 30 * time.Second
)

// live measures added latency: for each record the time a consumer of the destination gets it minus the time a consumer
// of the source gets it, at 2,000 records/s over 100 partitions.
func (b *bench) live() error {
	fmt.Printf("\nlive: %d records/s of %d B over %d partitions\n", liveRate, liveSize, liveParts)
	w := workload{name: "live"}
	p50, p99 := map[string]float64{}, map[string]float64{}
	for _, t := range []tool{b.mirrordTool(), b.mm2(w, 1)} { // linger 0 is MirrorMaker's best for latency
		if err := b.clean(); err != nil {
			return err
		}
		topic := fmt.Sprint("live-", len(p50))
		if _, err := b.s.Admin().CreateTopic(context.Background(), liveParts, 1, nil, topic); err != nil {
			return err
		}
		lat, cores, peak, err := b.liveRun(t, topic)
		if err != nil {
			return fmt.Errorf("live %s: %w", t.name, err)
		}
		p50[t.name], p99[t.name] = quantile(lat, .5), quantile(lat, .99)
		fmt.Printf("  %-12s added p50 %.1f ms  p99 %.1f ms  p99.9 %.1f ms  max %.1f ms  tool %.3f cores  peak %.0f MiB\n",
			t.name, p50[t.name], p99[t.name], quantile(lat, .999), quantile(lat, 1), cores, peak)
	}
	fmt.Printf("  ratios: p50 1/%.1f (bar 1/3) · p99 1/%.1f (bar 1/3)\n", p50["mm2-tuned-1"]/p50["mirrord"], p99["mm2-tuned-1"]/p99["mirrord"])
	return nil
}

func (b *bench) liveRun(t tool, topic string) (lat []float64, cores, peak float64, err error) {
	pid, stop, err := t.start(topic)
	if err != nil {
		return nil, 0, 0, err
	}
	defer stop()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		listed, err := b.d.Admin().ListTopics(context.Background(), topic)
		if err == nil && len(listed[topic].Partitions) == liveParts {
			break
		}
		if time.Now().After(deadline) {
			return nil, 0, 0, fmt.Errorf("the topic does not appear at the destination")
		}
	}
	time.Sleep(5 * time.Second)
	total := int((liveWarm + liveCounted).Seconds() * liveRate)
	skip := int(liveWarm.Seconds() * liveRate)
	start := time.Now()
	seen := [2][]time.Duration{make([]time.Duration, total), make([]time.Duration, total)}
	var readers sync.WaitGroup
	for i, c := range []*e2e.Cluster{b.s, b.d} {
		readers.Go(func() { consume(c, topic, start, seen[i]) })
	}
	before, err := b.writeLive(topic, start, total, skip, pid)
	after := b.now(pid)
	readers.Wait()
	for i := skip; i < total; i++ {
		if seen[0][i] > 0 && seen[1][i] > 0 {
			lat = append(lat, (seen[1][i]-seen[0][i]).Seconds()*1e3)
		}
	}
	if err == nil && len(lat) < (total-skip)*99/100 {
		err = fmt.Errorf("only %d of %d records seen on both sides", len(lat), total-skip)
	}
	slices.Sort(lat)
	return lat, (after.tool - before.tool) / after.at.Sub(before.at).Seconds(), peakMiB(pid), err
}

// writeLive writes at a steady rate, twenty records at a time, and gives the moment at which counting begins.
func (b *bench) writeLive(topic string, start time.Time, total, skip, pid int) (before moment, err error) {
	cl, err := producer(b.s, kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return before, err
	}
	defer cl.Close()
	for i := range total {
		if i == skip {
			before = b.now(pid)
		}
		time.Sleep(time.Until(start.Add(time.Duration(float64(i/20*20) / liveRate * 1e9))))
		v := make([]byte, liveSize)
		binary.BigEndian.PutUint64(v, uint64(i))
		cl.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(i % liveParts), Value: v}, nil)
	}
	return before, cl.Flush(context.Background())
}

func consume(c *e2e.Cluster, topic string, start time.Time, seen []time.Duration) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.Bootstrap(), ",")...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(500*time.Millisecond), kgo.FetchMinBytes(1), kgo.DisableClientMetrics())
	if err != nil {
		return
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), liveWarm+liveCounted+15*time.Second)
	defer cancel()
	for got := 0; got < len(seen) && ctx.Err() == nil; {
		fetches := cl.PollFetches(ctx)
		now := time.Since(start)
		fetches.EachRecord(func(r *kgo.Record) {
			got++
			seen[binary.BigEndian.Uint64(r.Value)] = now
		})
	}
}

func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}
