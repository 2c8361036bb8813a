package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"

	"mirrord/internal/config"
	"mirrord/internal/mirror"
)

// appliedByReload are the keys that take effect without a restart. Mirrors do too.
var appliedByReload = []string{"memory_limit", "throttle", "log.level"}

// reload reads the file again whenever it is asked to, until ctx ends.
func (d *Daemon) reload(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.opts.Hangups:
			d.notifier.reloading()
			d.reloadOnce()
			d.notifier.ready()
		}
	}
}

// reloadOnce does all that can fail first: a bad file changes nothing.
func (d *Daemon) reloadOnce() {
	next, err := config.Load(d.cfg.File)
	if err == nil {
		err = d.server.Reload()
	}
	if err != nil {
		d.metrics.reloaded.Set(0)
		d.complain(err)
		return
	}
	changed := config.Changed(d.cfg, next)
	d.parts.declare(next.Mirrors)
	d.parts.setLimits(next.MemoryLimit, next.Throttle)
	BoundMemory(next.MemoryLimit)
	if d.opts.Level != nil {
		d.opts.Level.Set(parseLevel(next.Log))
	}
	waiting := slices.DeleteFunc(config.Changed(d.started, next), func(key string) bool { return slices.Contains(appliedByReload, key) })
	d.log.Info("configuration reloaded", "changed", strings.Join(changed, ","), "mirrors", strings.Join(next.MirrorNames(), ","))
	if len(waiting) > 0 {
		d.log.Warn("changed settings wait for a restart", "keys", strings.Join(waiting, ","))
	}
	d.cfg = next
	d.metrics.reloaded.Set(1)
	d.metrics.reloadedAt.SetToCurrentTime()
}

// complain logs each mistake of a file by itself.
func (d *Daemon) complain(err error) {
	mistakes, ok := errors.AsType[*config.Mistakes](err)
	if !ok {
		d.log.Error("configuration was not reloaded", mirror.KeyErr, err)
		return
	}
	for _, m := range mistakes.List {
		d.log.Error("configuration was not reloaded", "key", m.Key, "line", m.Line, mirror.KeyErr, mistakes.Describe(m))
	}
}
