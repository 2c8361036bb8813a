package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"mirrord/internal/mirror"
)

// notifier speaks to the service manager; without one it is silent. It is safe for concurrent use.
type notifier struct {
	send func(state string) error
	log  *slog.Logger

	mu     sync.Mutex
	status string
}

func newNotifier(log *slog.Logger) *notifier {
	return &notifier{log: log, send: func(state string) error {
		_, err := systemd.SdNotify(false, state)
		return err
	}}
}

func (n *notifier) tell(lines ...string) {
	if err := n.send(strings.Join(lines, "\n")); err != nil {
		n.log.Debug("service manager did not listen", mirror.KeyErr, err)
	}
}

func (n *notifier) ready()    { n.tell(systemd.SdNotifyReady) }
func (n *notifier) stopping() { n.tell(systemd.SdNotifyStopping, "STATUS=stopping") }

// reloading must be followed by ready. The time lets the service manager tell this reload from an earlier one
// (Type=notify-reload).
func (n *notifier) reloading() {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		n.tell(systemd.SdNotifyReloading)
		return
	}
	n.tell(systemd.SdNotifyReloading, fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000))
}

// say sets the one line that systemctl status shows.
func (n *notifier) say(status string) {
	n.mu.Lock()
	changed := n.status != status
	n.status = status
	n.mu.Unlock()
	if changed {
		n.tell("STATUS=" + strings.ReplaceAll(status, "\n", "; "))
	}
}

// probe asks a main loop for a sign of life. It returns once the loop itself has answered.
type probe struct {
	name string
	ask  func(ctx context.Context) error
}

// watchdog tells the service manager that the process works, but only after every main loop has answered: a timer alone
// would vouch for a process whose work is dead.
type watchdog struct {
	notifier *notifier
	probes   []probe
	interval time.Duration // after which the service manager acts; 0: it does not watch
}

func newWatchdog(n *notifier, probes []probe) watchdog {
	interval, err := systemd.SdWatchdogEnabled(false)
	if err != nil {
		n.log.Warn("watchdog setting was not understood", mirror.KeyErr, err)
	}
	return watchdog{n, probes, interval}
}

func (w watchdog) run(ctx context.Context) error {
	if w.interval <= 0 {
		<-ctx.Done()
		return ctx.Err()
	}
	tick := time.NewTicker(w.interval / 4)
	defer tick.Stop()
	for {
		if w.alive(ctx) {
			w.notifier.tell(systemd.SdNotifyWatchdog)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// alive asks all loops at once and waits for at most a quarter of the interval.
func (w watchdog) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, w.interval/4)
	defer cancel()
	answers := make(chan error, len(w.probes))
	for _, p := range w.probes {
		go func() {
			err := p.ask(ctx)
			if err != nil {
				err = fmt.Errorf("%s: %w", p.name, err)
			}
			answers <- err
		}()
	}
	for range w.probes {
		select {
		case err := <-answers:
			if err != nil && ctx.Err() == nil {
				w.notifier.log.Error("a main loop made no progress", mirror.KeyErr, err)
				return false
			}
		case <-ctx.Done():
			w.notifier.log.Error("a main loop made no progress", mirror.KeyErr, context.Cause(ctx))
			return false
		}
	}
	return true
}
