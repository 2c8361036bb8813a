package mmm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// acls makes the destination's access rules follow the source's.
func (l *loop) acls(ctx context.Context, seen observation, d destinationSeen) {
	defer l.settle(ctx, StepACLs)
	m, ok := l.deps.View.Mirror(l.name)
	l.board.update(func(s *Status) { s.ACLsLeft, s.HeldACLs = "", 0 })
	if !ok || len(m.ACLsInclude) == 0 {
		return
	}
	if !l.listed(ctx, "source", seen.aclsErr) || !l.listed(ctx, "destination", d.aclsErr) {
		return
	}
	in := l.aclInput(m)
	in.source, in.destination = seen.acls, d.acls
	plan := planACLs(in)
	l.board.update(func(s *Status) { s.HeldACLs = plan.held })
	if err := l.applyACLs(ctx, plan); err != nil {
		l.failAll(StepACLs, err)
	} else if n := len(plan.create) + len(plan.delete); n > 0 {
		l.log.Info("ACLs changed", "created", len(plan.create), "deleted", len(plan.delete))
	}
}

// listed reports whether a cluster's rules are known; without an authorizer there are none, which is said once.
func (l *loop) listed(ctx context.Context, side string, err error) bool {
	switch {
	case err == nil:
		l.speaker.over("acls " + side)
		return true
	case kafka.SecurityDisabled(err):
		why := missingAuthorizer(side)
		l.board.update(func(s *Status) { s.ACLsLeft = why })
		l.speaker.say(ctx, slog.LevelInfo, "acls "+side, "ACLs not mirrored", why, mirror.KeyCause, why)
	default:
		l.fail(StepACLs, fmt.Errorf("%s: %w", side, err))
	}
	return false
}

func missingAuthorizer(side string) string { return "the " + side + " has no authorizer" }

// aclInput is what the decision needs from the state topic.
func (l *loop) aclInput(m statestore.Mirror) aclInput {
	rules, errs := parseRules(m.ACLsInclude)
	for _, err := range errs {
		l.fail(StepACLs, err)
	}
	in := aclInput{mirrorName: l.name, rules: rules, records: l.deps.View.ACLs(l.name), frozen: map[string]bool{}, idle: true}
	for _, t := range l.deps.View.Topics(l.name) {
		if !promoted(t) {
			in.active = append(in.active, t.Name)
		}
		if promoted(t) || t.Wish == mirror.Paused {
			in.frozen[t.Name] = true
		}
		in.idle = in.idle && t.Wish != mirror.Mirroring
	}
	return in
}

// applyACLs carries a plan out. Rules that could not be created or deleted keep their records and are tried again.
func (l *loop) applyACLs(ctx context.Context, p aclPlan) error {
	if err := l.put(ctx, records(p.put)...); err != nil {
		return err
	}
	failed := map[kafka.ACL]bool{}
	var errs []error
	note := func(acls []kafka.ACL, results []error) {
		for i, err := range results {
			if err != nil {
				failed[acls[i]] = true
				errs = append(errs, fmt.Errorf("destination: %w", err))
			}
		}
	}
	if len(p.create) > 0 {
		note(p.create, l.deps.Destination.CreateACLs(ctx, p.create))
	}
	if len(p.delete) > 0 {
		note(p.delete, l.deps.Destination.DeleteACLs(ctx, p.delete))
	}
	var drop []statestore.Record
	for _, r := range p.drop {
		if _, a, err := parseBinding(r.Binding); err != nil || !failed[a] {
			drop = append(drop, statestore.Tombstone{Of: r})
		}
	}
	return errors.Join(append(errs, l.put(ctx, drop...))...)
}

func records(acls []statestore.OwnedACL) []statestore.Record {
	recs := make([]statestore.Record, len(acls))
	for i, a := range acls {
		recs[i] = a
	}
	return recs
}
