package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"mirrord/test/e2e"

	"github.com/twmb/franz-go/pkg/kgo"
)

func producer(c *e2e.Cluster, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(c.Bootstrap(), ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DisableClientMetrics(),
	}, opts...)...)
}

// load fills the workload's topic at the source with batches of about the wanted size.
func load(c *e2e.Cluster, w workload) error {
	ctx := context.Background()
	limit, kept := "10485760", "producer"
	if _, err := c.Admin().CreateTopic(ctx, 8, 1, map[string]*string{"max.message.bytes": &limit, "compression.type": &kept}, w.name); err != nil {
		return err
	}
	codec := kgo.NoCompression()
	if w.codec == "lz4" {
		codec = kgo.Lz4Compression()
	}
	cl, err := producer(c, kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(int32(w.batch)), kgo.ProducerLinger(5*time.Millisecond), kgo.MaxBufferedRecords(60_000))
	if err != nil {
		return err
	}
	defer cl.Close()
	text, random := noise(8<<20), rand.New(rand.NewPCG(3, 4))
	var failed error
	for i := range w.records {
		cl.Produce(ctx, &kgo.Record{Topic: w.name, Partition: int32(i % 8), Value: value(text, random, w.size)}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	if failed != nil {
		return fmt.Errorf("fill %s: %w", w.name, failed)
	}
	return nil
}

// noise is text that a byte-wise codec cannot shorten.
func noise(n int) []byte {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	random, out := rand.New(rand.NewPCG(1, 2)), make([]byte, n)
	for i := range out {
		out[i] = letters[random.Uint64()&63]
	}
	return out
}

// value is half noise, half repetition: about 2:1 under lz4.
func value(text []byte, random *rand.Rand, size int) []byte {
	v := make([]byte, size)
	copy(v[:size/2], text[random.IntN(len(text)-size):])
	for i := size / 2; i < size; i++ {
		v[i] = 'x'
	}
	return v
}
