package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options of a demo.
type Options struct {
	HTTP string        // address of the console, which then stays up after the story; empty: none
	For  time.Duration // how long the producers write; 0: DefaultFor
	Out  io.Writer
}

// DefaultFor leaves time to see the mirror catch up after its crash.
const DefaultFor = 40 * time.Second

// demo is one telling of the story.
type demo struct {
	Options
	dir, binary string
	src, dst    *cluster
}

// Run tells the story. It returns an error if any part of it did not come true.
func Run(ctx context.Context, o Options) error {
	if o.For <= 0 {
		o.For = DefaultFor
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mirrord-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	d := &demo{Options: o, dir: dir, binary: binary}
	if d.src, err = startCluster(dir, "source"); err != nil {
		return err
	}
	defer d.src.close()
	if d.dst, err = startCluster(dir, "destination"); err != nil {
		return err
	}
	defer d.dst.close()
	return d.tell(ctx)
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.Out, format+"\n", args...) }

func (d *demo) tell(ctx context.Context) error {
	d.say("two embedded clusters of three brokers: source %s, destination %s", d.src.bootstrap(), d.dst.bootstrap())
	if err := prepare(ctx, d.src); err != nil {
		return err
	}
	if err := d.writeConfig(); err != nil {
		return err
	}
	daemon, err := d.launch(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = daemon.Process.Kill() }()
	if daemon, err = d.liveTraffic(ctx, daemon); err != nil {
		return err
	}
	if err := d.awaitLevel(ctx); err != nil {
		return err
	}
	if err := d.failover(ctx); err != nil {
		return err
	}
	d.say("\nall records are at their offsets on both sides.")
	if d.HTTP != "" {
		d.say("the console stays up at http://%s until this is interrupted", d.HTTP)
		<-ctx.Done()
	}
	return d.end(daemon)
}

// liveTraffic runs the producers while the mirror is killed and started again, paused and resumed.
func (d *demo) liveTraffic(ctx context.Context, daemon *exec.Cmd) (*exec.Cmd, error) {
	writing, stop := context.WithTimeout(ctx, d.For)
	defer stop()
	var producers errgroup.Group
	for _, t := range topics {
		p, err := newProducer(d.src, t)
		if err != nil {
			return daemon, err
		}
		producers.Go(func() error { return p.live(writing) })
	}
	d.say("producers write to %s", strings.Join(topicNames(), ", "))
	d.progress(writing, d.For/4)
	d.say("kill -9 of the mirror, and a new one. It begins after 16 s: these clusters, unlike Kafka, cannot say what of the old one is still under way")
	_ = daemon.Process.Kill()
	_ = daemon.Wait()
	daemon, err := d.launch(ctx)
	if err != nil {
		return daemon, err
	}
	d.progress(writing, d.For/4)
	if err := d.awaitMirrored(ctx); err != nil {
		return daemon, err
	}
	for _, verb := range []string{"pause", "resume"} {
		if err := d.command(ctx, verb, "--mirror", "demo", "--topics", "orders"); err != nil {
			return daemon, err
		}
	}
	d.progress(writing, d.For)
	return daemon, producers.Wait()
}

// failover drains, promotes, writes to the destination and proves both sides equal up to there.
func (d *demo) failover(ctx context.Context) error {
	for _, args := range [][]string{
		{"verify", "--mirror", "demo", "--full"},
		{"stop", "--mirror", "demo", "--topics", ".*", "--drain"},
		{"describe", "--mirror", "demo"},
	} {
		if err := d.command(ctx, args...); err != nil {
			return err
		}
	}
	p, err := newProducer(d.dst, topics[0])
	if err != nil {
		return err
	}
	defer p.cl.Close()
	if err := p.batch(ctx, 10); err != nil {
		return fmt.Errorf("write to the promoted topic: %w", err)
	}
	d.say("ten records written to the promoted topic %s at the destination", topics[0].name)
	return nil
}

func (d *demo) configFile() string { return filepath.Join(d.dir, "mirrord.yaml") }

func (d *demo) writeConfig() error {
	listen := d.HTTP
	if listen == "" {
		listen = "127.0.0.1:0"
	}
	yaml := fmt.Sprintf(`destination: {bootstrap_servers: [%s]}
group_id: mirrord-demo
instance_id: demo
session_timeout: 6s
state_topic: {num_partitions: 8, replication_factor: 3}
metadata_refresh_interval: 2s
group_sync_interval: 2s
data_dir: %q
http: {listen: %q}
log: {level: warn}
mirrors:
  - name: demo
    source: {bootstrap_servers: [%s]}
    topics_include: [".*"]
    transactions: committed
`, d.dst.bootstrap(), d.dir, listen, d.src.bootstrap())
	return os.WriteFile(d.configFile(), []byte(yaml), 0o600)
}

// launch starts `mirrord run` as a child, so that it can be killed like a real one.
func (d *demo) launch(ctx context.Context) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, d.binary, "run", "--config", d.configFile())
	cmd.Stdout, cmd.Stderr = d.Out, d.Out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd, cmd.Start()
}

func (d *demo) end(daemon *exec.Cmd) error {
	if err := daemon.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	if err := daemon.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("end the mirror: %w", err)
	}
	return nil
}

// command runs an operator's command and shows it.
func (d *demo) command(ctx context.Context, args ...string) error {
	d.say("\n$ mirrord %s", strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, d.binary, append(args, "--bootstrap-server", d.dst.bootstrap())...)
	cmd.Stdout, cmd.Stderr = d.Out, d.Out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("mirrord %s: %w", args[0], err)
	}
	return nil
}

// progress prints once a second how far the destination is, for a time or until ctx ends.
func (d *demo) progress(ctx context.Context, span time.Duration) {
	end := time.After(span)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-end:
			return
		case <-tick.C:
			_, source, err := d.src.extent(ctx)
			_, copied, err2 := d.dst.extent(ctx)
			if errors.Join(err, err2) == nil {
				d.say("  source %7d   destination %7d", source, copied)
			}
		}
	}
}

// awaitLevel waits until both sides begin and end at the same offsets.
func (d *demo) awaitLevel(ctx context.Context) error {
	return persist(ctx, func() error {
		s0, s1, err := d.src.extent(ctx)
		d0, d1, err2 := d.dst.extent(ctx)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		if s0 != d0 || s1 != d1 {
			return fmt.Errorf("not level: source [%d, %d), destination [%d, %d)", s0, s1, d0, d1)
		}
		d.say("level: offsets %d to %d on both sides", s0, s1)
		return nil
	})
}

// awaitMirrored waits until the first topic is at the destination.
func (d *demo) awaitMirrored(ctx context.Context) error {
	return persist(ctx, func() error {
		ends, err := d.dst.admin.ListEndOffsets(ctx, topics[0].name)
		if err != nil {
			return err
		}
		if end, _ := ends.Lookup(topics[0].name, 0); end.Err != nil || end.Offset == 0 {
			return fmt.Errorf("topic %s is not mirrored yet", topics[0].name)
		}
		return nil
	})
}

// persist repeats f until it gives no error, for a minute.
func persist(ctx context.Context, f func() error) error {
	for deadline := time.Now().Add(time.Minute); ; {
		err := f()
		if err == nil || ctx.Err() != nil {
			return cmp.Or(ctx.Err(), err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after a minute: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}
