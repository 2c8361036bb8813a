package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// Exit codes of the command line, a part of the product's interface.
const (
	ExitFailed      = 1 // refused or failed
	ExitUsage       = 2
	ExitUnfinished  = 3 // not finished in time
	ExitUnreachable = 4 // the cluster cannot be reached
)

const (
	connectTimeout = 5 * time.Second  // until the destination has answered anything
	loadTimeout    = 30 * time.Second // until the state topic is read
)

// Failure is a command that did not end well: the exit code, and what to tell, a line each.
type Failure struct {
	Code  int
	Lines []string
}

func (f *Failure) Error() string { return Visible(strings.Join(f.Lines, "\n")) }

func failure(code int, format string, args ...any) *Failure {
	return &Failure{code, []string{fmt.Sprintf(format, args...)}}
}

// Unreachable is the Failure for a cluster that cannot be reached, or for anything else that went wrong with it.
func Unreachable(name string, err error) *Failure {
	if kafka.Classify(err) == mirror.Unreachable || errors.Is(err, context.DeadlineExceeded) {
		return failure(ExitUnreachable, "cannot reach the %s cluster: %v", name, err)
	}
	return failure(ExitFailed, "%v", err)
}

// Operator does on a destination what the command line asks for. Results go to Out, everything else to Err.
type Operator struct {
	Destination *kafka.Cluster
	Out, Err    io.Writer
	Terminal    bool // Err is a terminal: progress is shown there
	OutTerminal bool // Out is one: long names are cut there
	JSON        bool // results as JSON instead of tables
}

func (o *Operator) tell(format string, args ...any) {
	fmt.Fprintln(o.Err, Visible(fmt.Sprintf(format, args...)))
}

// say is tell for results.
func (o *Operator) say(format string, args ...any) {
	fmt.Fprintln(o.Out, Visible(fmt.Sprintf(format, args...)))
}

// load reads the state topic once. statestore.ErrNoState: there is none. Every other error is a Failure.
func (o *Operator) load(ctx context.Context) (*statestore.Reader, error) {
	r := statestore.NewReader(o.Destination, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeoutCause(ctx, loadTimeout, fmt.Errorf("no answer within %v", loadTimeout))
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	slow := time.AfterFunc(connectTimeout, func() {
		if r.View().Shards() == 0 {
			giveUp(mirror.Errorf(mirror.Unreachable, "no answer within %v", connectTimeout))
		}
	})
	defer slow.Stop()
	err := o.settledState(ctx, r)
	_, told := errors.AsType[*Failure](err)
	switch {
	case err == nil, told, errors.Is(err, statestore.ErrNoState):
		return r, err
	case ctx.Err() != nil:
		return nil, Unreachable("destination", mirror.Errorf(mirror.Unreachable, "%w", o.Destination.Explain(context.Cause(ctx))))
	}
	return nil, Unreachable("destination", err)
}

// loaded is load for commands that only look: without a state topic they see a view without mirrors.
func (o *Operator) loaded(ctx context.Context) (*statestore.View, error) {
	r, err := o.load(ctx)
	if errors.Is(err, statestore.ErrNoState) {
		o.tell("%v", err)
		return r.View(), nil
	}
	if err != nil {
		return nil, err
	}
	if why := incomplete(r.View()); why != "" {
		return nil, failure(ExitFailed, "%s", why)
	}
	for shard, bad := range r.View().BadRecords() {
		o.tell("shard %d %s", shard, bad)
	}
	if len(r.View().BadRecords()) > 0 {
		o.tell("what to do: %s", statestore.BadRecordFix)
	}
	return r.View(), nil
}

// mirrorIn demands that a mirror exists.
func mirrorIn(v *statestore.View, name string) (statestore.Mirror, error) {
	m, ok := v.Mirror(name)
	if !ok {
		return m, failure(ExitFailed, "there is no mirror %q", name)
	}
	return m, nil
}
