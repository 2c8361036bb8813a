package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

const (
	noStatePause  = 500 * time.Millisecond // between looks for a state topic that an instance is about to create
	silenceHint   = 5 * time.Second        // then the operator is told what is waited for
	drainGrace    = 10 * time.Second       // a drain's end is told a little after its deadline
	reevaluateGap = 50 * time.Millisecond  // between two looks at thousands of partitions
)

// Request is a command with how to wait for its end.
type Request struct {
	mirror.Command
	Timeout time.Duration
	NoWait  bool
	DryRun  bool
	Source  OpenSource // for the dry run of a start; nil: the source is not asked
}

// Do submits a command and waits until it is answered and has taken effect on all partitions that it touches. The error
// is a Failure.
func (o *Operator) Do(ctx context.Context, req Request) error {
	deadline := req.Timeout
	if req.Drain {
		deadline += drainGrace
		req.TimeoutMillis = req.Timeout.Milliseconds()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, errTimeout)
	defer cancel()
	r, err := o.awaitState(ctx, req)
	if err != nil {
		return err
	}
	if err := refuseEarly(r.View(), req); err != nil {
		return err
	}
	if req.DryRun {
		return o.dryRun(ctx, r.View(), req)
	}
	req.ID, req.AtMillis = statestore.NewCommandID(), time.Now().UnixMilli()
	if err := statestore.SubmitCommand(ctx, o.Destination, req.Command); err != nil {
		return Unreachable("destination", err)
	}
	if req.NoWait {
		o.tell("submitted %s of mirror %s", req.Verb, req.Mirror)
		return nil
	}
	return orInterrupted(ctx, o.await(ctx, r, req))
}

// orInterrupted makes sure that the end of a wait is not taken for its timeout when the operator has ended it.
func orInterrupted(ctx context.Context, err error) error {
	f, ok := errors.AsType[*Failure](err)
	if !ok || f.Code != ExitUnfinished || errors.Is(context.Cause(ctx), errTimeout) {
		return err
	}
	return failure(ExitUnfinished, "interrupted; the command is kept and goes on without waiting for it: see mirrord describe")
}

var errTimeout = errors.New("the time given by --timeout is over")

// awaitState loads the state topic. Where there is none yet, an instance may be about to create it.
func (o *Operator) awaitState(ctx context.Context, req Request) (*statestore.Reader, error) {
	for told := false; ; {
		r, err := o.load(ctx)
		switch {
		case err != nil && told && ctx.Err() != nil: // the last look was cut short by the end of the wait
			return nil, failure(ExitUnfinished, "no instance answers: %v", statestore.ErrNoState)
		case !errors.Is(err, statestore.ErrNoState):
			return r, err
		}
		if req.NoWait || req.DryRun {
			return nil, failure(ExitFailed, "%v", err)
		}
		if !told {
			told = true
			o.tell("%v. Waiting for an instance", err)
		}
		if !sleep(ctx, noStatePause) {
			return nil, failure(ExitUnfinished, "no instance answers: %v", err)
		}
	}
}

// refuseEarly answers at once what no instance has to be asked for.
func refuseEarly(v *statestore.View, req Request) error {
	_, exists := v.Mirror(req.Mirror)
	switch {
	case req.Verb == mirror.VerbCreate && exists:
		return failure(ExitFailed, "mirror %s exists already", req.Mirror)
	case req.Verb != mirror.VerbCreate && !exists && incomplete(v) != "":
		return failure(ExitFailed, "whether there is a mirror %q is not known: %s", req.Mirror, incomplete(v))
	case req.Verb != mirror.VerbCreate && !exists:
		return failure(ExitFailed, "there is no mirror %q", req.Mirror)
	}
	return nil
}

// await follows the state topic until the command is answered and its topics are where they are to go.
func (o *Operator) await(ctx context.Context, r *statestore.Reader, req Request) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx) // ends by its context only
	}()
	defer func() {
		cancel()
		<-ended
	}()
	hint := time.AfterFunc(silenceHint, func() {
		o.tell("waiting for an instance to execute %s (%s)", req.Verb, ownerOf(r.View(), req.Mirror))
	})
	outcome, err := o.awaitOutcome(ctx, r.View(), req)
	hint.Stop()
	if err != nil {
		return err
	}
	refused := refusals(outcome)
	if outcome.Refused {
		return &Failure{ExitFailed, refused}
	}
	return o.awaitTopics(ctx, r.View(), newGoal(r.View(), req.Command, outcome), refused)
}

func refusals(o mirror.Outcome) (lines []string) {
	if o.Refused {
		lines = append(lines, o.Message)
	}
	for _, t := range o.Topics {
		if t.Refused {
			lines = append(lines, naming(t.Topic, t.Message))
		}
	}
	return lines
}

func (o *Operator) awaitOutcome(ctx context.Context, v *statestore.View, req Request) (mirror.Outcome, error) {
	for {
		changed := v.Changed()
		if outcome, ok := v.Outcome(req.ID); ok {
			return outcome, nil
		}
		select {
		case <-ctx.Done():
			return mirror.Outcome{}, unanswered(v, req)
		case <-changed:
		}
	}
}

// unanswered says what is missing: an instance, or the end of a drain.
func unanswered(v *statestore.View, req Request) *Failure {
	var lines []string
	for _, t := range v.Topics(req.Mirror) {
		if req.Drain && t.DrainCommand == req.ID {
			lines = append(lines, fmt.Sprintf("topic %s is still being drained", t.Name))
		}
	}
	if len(lines) == 0 {
		lines = []string{
			fmt.Sprintf("no instance answers within %v (%s): is mirrord running on this destination?", req.Timeout, ownerOf(v, req.Mirror)),
			"the command is kept and will be executed when one is; a later command for the same topics wins",
		}
	}
	return &Failure{ExitUnfinished, lines}
}

// ownerOf tells who executes the commands of a mirror.
func ownerOf(v *statestore.View, mirrorName string) string {
	if v.Shards() == 0 {
		return "no instance has prepared this destination yet"
	}
	claim, ok := v.Claim(mirror.ShardOfMirror(mirrorName, v.Shards()))
	switch {
	case !ok:
		return "no instance has taken over this mirror yet"
	case claim.Released:
		return "instance " + claim.Owner + " gave this mirror up"
	}
	return "this mirror belongs to instance " + claim.Owner
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
