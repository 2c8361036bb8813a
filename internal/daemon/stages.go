package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"mirrord/internal/mirror"
)

// actor runs until its context ends. One that returns earlier has failed, even if it says nil.
type actor struct {
	name string
	run  func(context.Context) error
}

// stage is a set of actors that start and stop together. Limit bounds its stop: then it is left behind, which the write
// protocol makes safe, so that later stages still get their turn.
type stage struct {
	limit  time.Duration
	actors []actor
}

var errNotAsked = errors.New("ended without being asked to")

// running is a stage that was started.
type running struct {
	stage
	cancel context.CancelFunc
	done   chan struct{} // closed when all actors have returned

	mu   sync.Mutex
	live map[string]bool
	errs []error
}

// runStages starts the stages in order. When ctx ends or any actor returns, it stops them in reverse order, each one
// completely, or up to its limit, before the next is asked. hurry cuts all waiting short.
func runStages(ctx context.Context, log *slog.Logger, hurry <-chan struct{}, stages ...stage) error {
	ctx, trip := context.WithCancel(ctx)
	defer trip()
	var started []*running
	for _, s := range stages {
		started = append(started, start(ctx, trip, s))
	}
	<-ctx.Done()
	var errs []error
	for _, r := range slices.Backward(started) {
		errs = append(errs, r.stop(log, hurry))
	}
	return errors.Join(errs...)
}

func start(ctx context.Context, trip context.CancelFunc, s stage) *running {
	r := &running{stage: s, done: make(chan struct{}), live: map[string]bool{}}
	stageCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.cancel = cancel
	var all sync.WaitGroup
	for _, a := range s.actors {
		r.live[a.name] = true
		all.Go(func() {
			err := a.run(stageCtx)
			r.ended(a.name, err, stageCtx.Err() != nil)
			if stageCtx.Err() == nil {
				trip()
			}
		})
	}
	go func() {
		all.Wait()
		close(r.done)
	}()
	return r
}

func (r *running) ended(name string, err error, asked bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, name)
	switch {
	case !asked:
		r.errs = append(r.errs, fmt.Errorf("%s: %w", name, cmp.Or(err, errNotAsked)))
	case err != nil && !errors.Is(err, context.Canceled):
		r.errs = append(r.errs, fmt.Errorf("stop %s: %w", name, err))
	}
}

// stop cancels the stage and waits for it.
func (r *running) stop(log *slog.Logger, hurry <-chan struct{}) error {
	r.cancel()
	limit := time.NewTimer(r.limit)
	defer limit.Stop()
	select {
	case <-r.done:
	case <-hurry:
	case <-limit.C:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.live) > 0 {
		var names []string
		for name := range r.live {
			names = append(names, name)
		}
		slices.Sort(names)
		log.Warn("stopped without waiting any longer", "actors", strings.Join(names, ","), mirror.KeyDuration, r.limit)
	}
	return errors.Join(r.errs...)
}

// undo is a stack of named things to close, the last opened first.
type undo struct{ steps []closing }

type closing struct {
	name  string
	close func() error
}

func (u *undo) push(name string, f func() error) { u.steps = append(u.steps, closing{name, f}) }

// run closes everything, one failure never hiding the next, and waits for at most limit.
func (u *undo) run(log *slog.Logger, limit time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, s := range slices.Backward(u.steps) {
			if err := s.close(); err != nil {
				log.Warn("closing went wrong", "what", s.name, mirror.KeyErr, err)
			}
		}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		log.Warn("closing took too long")
	}
}
