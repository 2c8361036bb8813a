package mmm

import (
	"cmp"
	"maps"
	"slices"

	"mirrord/internal/kafka"
	"mirrord/internal/statestore"
)

// aclInput is what the decision about ACLs looks at.
type aclInput struct {
	mirrorName          string
	source, destination []kafka.ACL
	rules               []aclRule
	records             []statestore.OwnedACL
	active              []string        // mirror topics that are not promoted: their ACLs follow the source, rights to write apart
	frozen              map[string]bool // promoted and paused mirror topics: their ACLs are left as they are
	idle                bool            // no topic is being mirrored: nothing follows the source
}

// aclPlan changes the destination's ACLs. Records are written before the deed they allow: first put, then create and
// delete, then drop.
type aclPlan struct {
	create, delete []kafka.ACL
	put, drop      []statestore.OwnedACL
	held           int // rights to write that wait for STOPPED
}

func (p aclPlan) changes() bool {
	return len(p.create)+len(p.delete)+len(p.put)+len(p.drop) > 0
}

// ledger is a set of ACL records by what they say.
type ledger map[ownership]map[kafka.ACL]bool

// readLedger decodes the records of a mirror; unreadable ones are left alone.
func readLedger(records []statestore.OwnedACL) ledger {
	l := ledger{ownedCopy: {}, ownedHeld: {}, ownedPart: {}, ownedGuard: {}}
	for _, r := range records {
		if o, a, err := parseBinding(r.Binding); err == nil && l[o] != nil {
			l[o][a] = true
		}
	}
	return l
}

// planACLs makes the destination's ACLs follow the source's. Only what mirrord created is deleted, and only when the
// source does not have it any more: a rule that was taken out of the definition leaves what it brought.
func planACLs(in aclInput) (p aclPlan) {
	if in.idle {
		return p
	}
	own, there := readLedger(in.records), setOf(in.destination)
	want, hold := in.wanted()
	p.held = len(hold)
	for _, a := range sortedACLs(want) {
		if !there[a] {
			p.create = append(p.create, a)
			p.put = in.record(p.put, ownedCopy, a, !own[ownedCopy][a])
		}
	}
	for _, a := range sortedACLs(hold) {
		p.put = in.record(p.put, ownedHeld, a, !own[ownedHeld][a])
	}
	in.retire(&p, own, want, hold, there)
	return p
}

// wanted splits what the rules select into what the destination gets now and what waits.
func (in aclInput) wanted() (want, hold map[kafka.ACL]bool) {
	want, hold = map[kafka.ACL]bool{}, map[kafka.ACL]bool{}
	for _, a := range in.source {
		if !selected(in.rules, a) || in.isFrozen(a) || in.isForeignGuard(a) {
			continue
		}
		if !grantsWriting(a) || !in.aboutActive(a) {
			want[a] = true
			continue
		}
		hold[a] = true
		if a.Operation == "ALL" {
			for _, op := range readRights {
				a.Operation = op
				want[a] = true
			}
		}
	}
	return want, hold
}

// retire deletes the copies that the source does not have any more and forgets what no longer waits.
func (in aclInput) retire(p *aclPlan, own ledger, want, hold, there map[kafka.ACL]bool) {
	source := setOf(in.source)
	for _, a := range sortedACLs(own[ownedCopy]) {
		waits := grantsWriting(a) && in.aboutActive(a)
		if want[a] || source[a] && !waits || in.isFrozen(a) {
			continue
		}
		if there[a] {
			p.delete = append(p.delete, a)
		}
		p.drop = in.record(p.drop, ownedCopy, a, true)
	}
	for _, a := range sortedACLs(own[ownedHeld]) {
		if !hold[a] && !in.isFrozen(a) {
			p.drop = in.record(p.drop, ownedHeld, a, true)
		}
	}
	in.dropParts(p, own, there, func(part kafka.ACL) bool { return in.aboutActive(part) }) // mirrored again
}

// dropParts deletes the parts of rules that are over.
func (in aclInput) dropParts(p *aclPlan, own ledger, there map[kafka.ACL]bool, over func(part kafka.ACL) bool) {
	for _, a := range sortedACLs(own[ownedPart]) {
		if !over(a) {
			continue
		}
		if there[a] {
			p.delete = append(p.delete, a)
		}
		p.drop = in.record(p.drop, ownedPart, a, true)
	}
}

func (in aclInput) record(to []statestore.OwnedACL, o ownership, a kafka.ACL, missing bool) []statestore.OwnedACL {
	if !missing {
		return to
	}
	return append(to, statestore.OwnedACL{Mirror: in.mirrorName, Binding: bindingText(o, a)})
}

// aboutActive reports whether an ACL speaks about a topic that is still being mirrored.
func (in aclInput) aboutActive(a kafka.ACL) bool {
	return slices.ContainsFunc(in.active, func(t string) bool { return covers(a, t) })
}

// isFrozen reports whether an ACL names a topic whose ACLs are left as they are.
func (in aclInput) isFrozen(a kafka.ACL) bool {
	return a.ResourceType == resourceTopic && a.PatternType == literal && in.frozen[a.ResourceName]
}

// isForeignGuard reports whether an ACL of the source is the guard of a mirror that ends there: copied, it would stay
// on this side after the promotion.
func (in aclInput) isForeignGuard(a kafka.ACL) bool { return a == guardOf(a.ResourceName) }

// planGrants decides what a promotion grants: the rights that waited for the topics. A rule that speaks about others, too,
// which are still mirrored, goes on waiting for them; until then each promoted topic has its part of it.
func planGrants(in aclInput, topics []string) (p aclPlan) {
	own, there := readLedger(in.records), setOf(in.destination)
	grant := func(o ownership, a kafka.ACL) {
		if !there[a] {
			p.create = append(p.create, a)
			p.put = in.record(p.put, o, a, !own[o][a])
		}
	}
	for _, a := range sortedACLs(own[ownedHeld]) {
		about := slices.DeleteFunc(slices.Clone(topics), func(t string) bool { return !covers(a, t) })
		switch {
		case len(about) == 0:
		case in.aboutActive(a):
			for _, t := range about {
				grant(ownedPart, partOf(a, t))
			}
		default:
			grant(ownedCopy, a)
			p.drop = in.record(p.drop, ownedHeld, a, true)
			in.dropParts(&p, own, there, func(part kafka.ACL) bool { return part == partOf(a, part.ResourceName) && covers(a, part.ResourceName) })
		}
	}
	return p
}

// planGuards sets the guard on topics that need it and have none, and lifts it from those that need it no more. A topic
// keeps a rule of the same words that mirrord did not make.
func planGuards(in aclInput, guarded []string) (p aclPlan) {
	own, there := readLedger(in.records)[ownedGuard], setOf(in.destination)
	for _, topic := range guarded {
		a := guardOf(topic)
		if there[a] {
			continue
		}
		p.create = append(p.create, a)
		p.put = in.record(p.put, ownedGuard, a, !own[a])
	}
	for _, a := range sortedACLs(own) {
		if slices.Contains(guarded, a.ResourceName) {
			continue
		}
		if there[a] {
			p.delete = append(p.delete, a)
		}
		p.drop = in.record(p.drop, ownedGuard, a, true)
	}
	return p
}

func setOf(acls []kafka.ACL) map[kafka.ACL]bool {
	set := make(map[kafka.ACL]bool, len(acls))
	for _, a := range acls {
		set[a] = true
	}
	return set
}

// sortedACLs lists a set in a fixed order, so that plans and logs read the same each time.
func sortedACLs(set map[kafka.ACL]bool) []kafka.ACL {
	return slices.SortedFunc(maps.Keys(set), func(a, b kafka.ACL) int {
		return cmp.Or(cmp.Compare(a.ResourceType, b.ResourceType), cmp.Compare(a.ResourceName, b.ResourceName),
			cmp.Compare(a.PatternType, b.PatternType), cmp.Compare(a.Principal, b.Principal), cmp.Compare(a.Host, b.Host),
			cmp.Compare(a.Operation, b.Operation), cmp.Compare(a.Permission, b.Permission))
	})
}
