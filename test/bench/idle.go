package main

import (
	"context"
	"fmt"
	"time"

	"mirrord/test/e2e"
)

const (
	idleTopics     = 50
	idlePartitions = 100 // of each
	idleSpan       = 30 * time.Second
)

// idle measures what 5,000 partitions cost in which nothing happens.
func (b *bench) idle() error {
	fmt.Printf("\nidle: %d partitions with nothing to do\n", idleTopics*idlePartitions)
	if err := b.clean(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for i := range idleTopics {
		name := fmt.Sprint("idle-", i)
		if _, err := b.s.Admin().CreateTopic(ctx, idlePartitions, 1, nil, name); err != nil {
			return err
		}
		if err := b.s.Client().ProduceSync(ctx, e2e.Numbered(name, 0, 0, 10)...).FirstErr(); err != nil {
			return err
		}
	}
	pid, stop, err := b.mirrordTool().start("idle-.*")
	if err != nil {
		return err
	}
	defer stop()
	for mirrored := 0; mirrored < idleTopics; time.Sleep(pollInterval) {
		mirrored = 0
		for i := range idleTopics {
			if n, err := count(b.d.Admin(), fmt.Sprint("idle-", i)); err == nil && n == 10 {
				mirrored++
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d topics are mirrored: %w", mirrored, idleTopics, ctx.Err())
		}
	}
	time.Sleep(5 * time.Second) // what the start left to do
	before := b.now(pid)
	time.Sleep(idleSpan)
	after := b.now(pid)
	s := after.at.Sub(before.at).Seconds()
	fmt.Printf("  mirrord      tool %.4f cores (bar 0.01)  source %.3f  destination %.3f  peak %.0f MiB\n",
		(after.tool-before.tool)/s, (after.src-before.src)/s, (after.dst-before.dst)/s, peakMiB(pid))
	return nil
}
