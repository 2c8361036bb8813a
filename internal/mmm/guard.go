package mmm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// probeACL tells whether a DENY binds mirrord itself. It denies what nobody does and mirrord does not need, so it harms
// nobody, even if a crash leaves it there; the next probe removes it.
func probeACL() kafka.ACL {
	return kafka.ACL{
		ResourceType: resourceTopic, PatternType: literal, ResourceName: statestore.CommandsTopic, Operation: "DELETE",
		Permission: deny, Principal: everyone, Host: anyName,
	}
}

// How often the rights are asked for, and how long between: a broker learns of a rule a moment after it was accepted, and
// each request may go to another one.
const (
	probeLooks = 5
	probePause = 200 * time.Millisecond
)

// ErrNotSuperUser says that the guard would lock mirrord out of the topics it writes.
var ErrNotSuperUser = mirror.Errorf(mirror.Refused, "the read-only guard denies writing to everybody but super users, and mirrord is none").
	WithHint("add its principal to super.users of the destination, or set read_only to off")

// ProbeGuard finds out whether the read-only guard can be used: the destination has an authorizer, mirrord may change
// ACLs there, and a DENY for everybody does not bind it. It denies everybody the deletion of __mirror_commands, asks for
// its own rights on that topic, and takes the rule away again.
func ProbeGuard(ctx context.Context, dst *kafka.Cluster) (err error) {
	probe := []kafka.ACL{probeACL()}
	if err := dst.CreateACLs(ctx, probe)[0]; err != nil {
		return fmt.Errorf("probe the read-only guard: %w", err)
	}
	defer func() {
		if gone := dst.DeleteACLs(ctx, probe)[0]; gone != nil {
			err = errors.Join(err, fmt.Errorf("remove the probe of the read-only guard: %w", gone))
		}
	}()
	for range probeLooks {
		select {
		case <-ctx.Done():
			return mirror.Errorf(mirror.Unreachable, "probe the read-only guard: %w", context.Cause(ctx))
		case <-time.After(probePause):
		}
		rights := dst.TopicOperations(ctx, statestore.CommandsTopic)[statestore.CommandsTopic]
		switch {
		case rights.Err != nil:
			return fmt.Errorf("probe the read-only guard: %w", rights.Err)
		case !rights.Operations.Has(kafka.OpDelete):
			return ErrNotSuperUser
		}
	}
	return nil
}

// guardState is what a loop knows about the guard.
type guardState struct {
	probed bool
	err    error // why it cannot be used
}

// learnGuard finds out once whether the guard can be used, if it is wanted at all.
func (l *loop) learnGuard(ctx context.Context, d destinationSeen) {
	defer l.settle(ctx, StepGuard)
	if !l.guardWanted() {
		l.board.update(func(s *Status) { s.Unguarded = "" })
		return
	}
	if !l.guard.probed {
		err := d.aclsErr
		if err == nil {
			_, err = within(ctx, l.cfg.CallTimeout, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, ProbeGuard(ctx, l.deps.Destination)
			})
		}
		settled := err == nil || mirror.KindOf(err) == mirror.Refused
		l.guard = guardState{probed: settled, err: err}
	}
	l.tellGuard(ctx)
}

func (l *loop) guardWanted() bool {
	m, ok := l.deps.View.Mirror(l.name)
	return ok && (m.ReadOnly == mirror.Auto || m.ReadOnly == mirror.GuardACL)
}

// tellGuard: under auto the lack of a guard is worth a line, under acl it is an error each time.
func (l *loop) tellGuard(ctx context.Context) {
	err := l.guard.err
	why := ""
	switch {
	case kafka.SecurityDisabled(err):
		why = missingAuthorizer("destination")
	case err != nil:
		why = err.Error()
	}
	l.board.update(func(s *Status) { s.Unguarded = why })
	m, _ := l.deps.View.Mirror(l.name)
	switch {
	case err == nil:
		l.speaker.over("guard")
	case m.ReadOnly == mirror.GuardACL:
		l.fail(StepGuard, err)
		l.guard.probed = false // an operator waits for it: look again
	case kafka.SecurityDisabled(err):
		l.speaker.say(ctx, slog.LevelInfo, "guard", "mirror topics are not guarded", why, mirror.KeyCause, why)
	default:
		l.speaker.say(ctx, slog.LevelWarn, "guard", "mirror topics are not guarded", err.Error(), mirror.KeyErr, err)
	}
}

// guarded lists the topics that are to have the guard: all that are not promoted, apart from those that were never
// taken over because they are not what the source has, or would go in a circle; those too while they are recreated.
func (l *loop) guarded() (topics []string) {
	if !l.guardUsable() {
		return nil
	}
	own, busy := readLedger(l.deps.View.ACLs(l.name))[ownedGuard], l.recreating.list()
	for _, t := range l.deps.View.Topics(l.name) {
		if t.DestinationID.IsZero() || promoted(t) {
			continue
		}
		if busy[t.Name] || !wishLost(t) && l.guardable(t, own[guardOf(t.Name)]) {
			topics = append(topics, t.Name)
		}
	}
	return topics
}

// guardable reports whether a topic is mirrord's to guard; guarded: it is already.
func (l *loop) guardable(t statestore.Topic, guarded bool) bool {
	found := func(k mirror.Kind) bool { return t.Finding.Message != "" && t.Finding.Kind == k }
	s, _ := l.deps.View.Settings(l.name, t.Name)
	switch {
	case found(mirror.Diverged), l.standing(t) == turnedAway, s.Untouched && t.Unready && t.Wish != mirror.Mirroring:
		return false
	case found(mirror.Loop), !l.circles.allows(t):
		return guarded
	}
	return true
}

func (l *loop) guardUsable() bool { return l.guardWanted() && l.guard.probed && l.guard.err == nil }

// guardFirst guards the topics that were just created or taken over before their records let the data path begin
// (protocol R20).
func (l *loop) guardFirst(ctx context.Context, plans []topicPlan, d destinationSeen) error {
	if !l.guardUsable() {
		return nil
	}
	if d.aclsErr != nil {
		return d.aclsErr
	}
	topics := l.guarded()
	fresh := false
	for _, p := range plans {
		if p.before.DestinationID.IsZero() && !p.after.DestinationID.IsZero() && p.after.Finding.Message == "" && !wishLost(p.after) {
			topics, fresh = append(topics, p.after.Name), true
		}
	}
	if !fresh {
		return nil
	}
	return l.applyGuards(ctx, d.acls, topics)
}

// guards sets the guard where it is missing and lifts it where it is over. It reports whether all topics have what they
// can have: without an authorizer, or the right to use it, that is no guard.
func (l *loop) guards(ctx context.Context, d destinationSeen) (settled bool) {
	defer l.settle(ctx, StepGuard)
	if d.aclsErr != nil {
		return lasting(d.aclsErr) // said by acls
	}
	if l.guardWanted() && !l.guard.probed {
		return lasting(l.guard.err) // not known: neither set nor lifted
	}
	if !l.planGuards(d.acls, l.guarded()).changes() {
		return true
	}
	acls, err := within(ctx, l.cfg.CallTimeout, l.deps.Destination.DescribeACLs) // others have changed since d was seen
	if err == nil {
		err = l.applyGuards(ctx, acls, l.guarded())
	}
	if err != nil {
		l.fail(StepGuard, err)
		return lasting(err)
	}
	return true
}

// lasting reports whether waiting does not help.
func lasting(err error) bool {
	return mirror.KindOf(err) == mirror.Refused || kafka.SecurityDisabled(err)
}

// ready lets the logs of topics be compared whose settings and guard this cycle has seen to (protocol R20).
func (l *loop) ready(ctx context.Context, prepared []statestore.Topic) {
	defer l.settle(ctx, StepState)
	var recs []statestore.Record
	for _, t := range prepared {
		after := t
		after.Unready = false
		now, ok := l.deps.View.Topic(l.name, t.Name)
		if merged, fits := mergeTopic(now, t, after); ok && fits && t.Unready {
			recs = append(recs, merged)
		}
	}
	l.fail(StepState, l.put(ctx, recs...))
}

func (l *loop) planGuards(there []kafka.ACL, topics []string) aclPlan {
	return planGuards(aclInput{mirrorName: l.name, destination: there, records: l.deps.View.ACLs(l.name)}, topics)
}

func (l *loop) applyGuards(ctx context.Context, there []kafka.ACL, topics []string) error {
	plan := l.planGuards(there, topics)
	if !plan.changes() {
		return nil
	}
	return l.applyACLs(ctx, plan)
}
