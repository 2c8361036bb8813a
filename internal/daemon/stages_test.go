package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// diary notes what happens, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.lines)
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// worker ends some time after it was asked to, or never.
func (d *diary) worker(name string, takes time.Duration) actor {
	return actor{name, func(ctx context.Context) error {
		<-ctx.Done()
		d.note("ask " + name)
		if takes < 0 {
			select {}
		}
		time.Sleep(takes)
		d.note("end " + name)
		return ctx.Err()
	}}
}

var quiet = slog.New(slog.DiscardHandler)

func TestStagesStopInReverseEachCompletely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := runStages(ctx, quiet, nil,
			stage{time.Hour, []actor{d.worker("http", 0)}},
			stage{time.Hour, []actor{d.worker("store", time.Second)}},
			stage{time.Hour, []actor{d.worker("coordinator", 3*time.Second)}},
		)
		want := []string{"ask coordinator", "end coordinator", "ask store", "end store", "ask http", "end http"}
		if err != nil || !slices.Equal(d.all(), want) {
			t.Errorf("%v\n got %v\nwant %v", err, d.all(), want)
		}
	})
}

func TestAStageThatTakesTooLongIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		var log bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		err := runStages(ctx, slog.New(slog.NewTextHandler(&log, nil)), nil,
			stage{time.Second, []actor{d.worker("http", 0)}},
			stage{5 * time.Second, []actor{d.worker("stuck", time.Hour), d.worker("quick", 0)}},
		)
		if took := time.Since(began); err != nil || took != 5*time.Second {
			t.Errorf("took %v, %v", took, err)
		}
		if !slices.Contains(d.all(), "end http") {
			t.Error("the stage below did not get its turn")
		}
		if !strings.Contains(log.String(), "actors=stuck") {
			t.Errorf("not told: %s", log.String())
		}
		time.Sleep(2 * time.Hour) // the bubble must end
	})
}

func TestHurryEndsAllWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithCancel(t.Context())
		hurry := make(chan struct{})
		cancel()
		time.AfterFunc(time.Second, func() { close(hurry) })
		began := time.Now()
		err := runStages(ctx, quiet, hurry,
			stage{time.Hour, []actor{d.worker("a", time.Minute)}}, stage{time.Hour, []actor{d.worker("b", time.Minute)}})
		if took := time.Since(began); err != nil || took != time.Second {
			t.Errorf("took %v, %v", took, err)
		}
		time.Sleep(time.Hour)
	})
}

func TestAnActorThatEndsByItselfStopsTheOthers(t *testing.T) {
	cause := errors.New("group refused")
	for _, c := range []struct {
		name string
		err  error
		want string
	}{{"with an error", cause, "coordinator: group refused"}, {"without one", nil, "coordinator: ended without being asked to"}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d diary
				err := runStages(t.Context(), quiet, nil,
					stage{time.Hour, []actor{d.worker("http", 0)}},
					stage{time.Hour, []actor{{"coordinator", func(context.Context) error { return c.err }}}},
					stage{time.Hour, []actor{d.worker("fetchers", 0)}},
				)
				if err == nil || err.Error() != c.want || c.err != nil && !errors.Is(err, c.err) {
					t.Errorf("got %v, want %s", err, c.want)
				}
				if want := []string{"ask fetchers", "end fetchers", "ask http", "end http"}; !slices.Equal(d.all(), want) {
					t.Errorf("got %v", d.all())
				}
			})
		})
	}
}

func TestUndoClosesLastOpenedFirstAndGoesOnAfterAFailure(t *testing.T) {
	var u undo
	var closed []string
	for _, name := range []string{"a", "b", "c"} {
		u.push(name, func() error {
			closed = append(closed, name)
			return errors.New("cannot")
		})
	}
	u.run(quiet, time.Minute)
	if want := []string{"c", "b", "a"}; !slices.Equal(closed, want) {
		t.Errorf("got %v", closed)
	}
}

func TestUndoIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u undo
		u.push("stuck", func() error { time.Sleep(time.Hour); return nil })
		began := time.Now()
		u.run(quiet, time.Second)
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %v", took)
		}
		time.Sleep(time.Hour)
	})
}
