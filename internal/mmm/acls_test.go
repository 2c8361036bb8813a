package mmm

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"mirrord/internal/kafka"
	"mirrord/internal/statestore"
)

func acl(permission, operation, name, principal string) kafka.ACL {
	return kafka.ACL{
		ResourceType: resourceTopic, PatternType: literal, ResourceName: name, Operation: operation, Permission: permission,
		Principal: principal, Host: anyName,
	}
}

func owned(o ownership, acls ...kafka.ACL) (records []statestore.OwnedACL) {
	for _, a := range acls {
		records = append(records, statestore.OwnedACL{Mirror: "m", Binding: bindingText(o, a)})
	}
	return records
}

func anyACL(t *testing.T) []aclRule {
	t.Helper()
	rules, errs := parseRules([]string{"*"})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return rules
}

func TestPlanACLs(t *testing.T) {
	read, write, all := acl(allow, "READ", "t", "User:a"), acl(allow, "WRITE", "t", "User:a"), acl(allow, "ALL", "t", "User:a")
	local := acl(allow, "DESCRIBE", "t", "User:local")
	denied := acl(deny, "READ", "t", "User:b")
	prefix := kafka.ACL{ResourceType: resourceTopic, PatternType: prefixed, ResourceName: "t", Operation: "WRITE", Permission: allow, Principal: "User:p", Host: "10.0.0.1"}
	group := kafka.ACL{ResourceType: "GROUP", PatternType: prefixed, ResourceName: "g", Operation: "READ", Permission: allow, Principal: "User:a", Host: anyName}
	other := acl(allow, "WRITE", "other", "User:a")
	derived := func(op string) kafka.ACL { return acl(allow, op, "t", "User:a") }
	for _, tt := range []struct {
		name           string
		in             aclInput
		create, delete []kafka.ACL
		put, drop      []statestore.OwnedACL
	}{
		{
			name: "read rights are copied exactly", in: aclInput{source: []kafka.ACL{read, denied, group}}, create: []kafka.ACL{group, read, denied},
			put: owned(ownedCopy, group, read, denied),
		},
		{name: "level", in: aclInput{source: []kafka.ACL{read}, destination: []kafka.ACL{read, local}, records: owned(ownedCopy, read)}},
		{
			name: "rights to write a mirror topic wait", in: aclInput{source: []kafka.ACL{write, prefix, other}}, create: []kafka.ACL{other},
			put: slices.Concat(owned(ownedCopy, other), owned(ownedHeld, write, prefix)),
		},
		{
			name: "ALL waits and leaves the right to read", in: aclInput{source: []kafka.ACL{all}},
			create: []kafka.ACL{derived("DESCRIBE"), derived("DESCRIBE_CONFIGS"), derived("READ")},
			put:    slices.Concat(owned(ownedCopy, derived("DESCRIBE"), derived("DESCRIBE_CONFIGS"), derived("READ")), owned(ownedHeld, all)),
		},
		{
			name: "the last one goes when the source drops it, local ones stay", in: aclInput{destination: []kafka.ACL{read, local}, records: owned(ownedCopy, read)},
			delete: []kafka.ACL{read}, drop: owned(ownedCopy, read),
		},
		{name: "one that mirrord did not make stays", in: aclInput{destination: []kafka.ACL{read}}},
		{name: "one that was there before is not ours", in: aclInput{source: []kafka.ACL{read}, destination: []kafka.ACL{read}}},
		{name: "a waiting right that the source drops is forgotten", in: aclInput{records: owned(ownedHeld, write)}, drop: owned(ownedHeld, write)},
		{name: "a granted right waits again when the topic is mirrored again", in: aclInput{
			source: []kafka.ACL{write}, destination: []kafka.ACL{write},
			records: owned(ownedCopy, write),
		}, delete: []kafka.ACL{write}, drop: owned(ownedCopy, write), put: owned(ownedHeld, write)},
		{name: "what is promoted is left alone", in: aclInput{
			active: []string{"other"}, frozen: map[string]bool{"t": true},
			destination: []kafka.ACL{write}, records: owned(ownedCopy, write, read),
		}},
		{name: "nothing follows a source that nothing is mirrored from", in: aclInput{idle: true, destination: []kafka.ACL{read}, records: owned(ownedCopy, read)}},
		{name: "the guard of a mirror that ends at the source is not copied", in: aclInput{source: []kafka.ACL{guardOf("t")}}},
		{name: "one that was taken away by hand comes back", in: aclInput{source: []kafka.ACL{read}, records: owned(ownedCopy, read)}, create: []kafka.ACL{read}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.in.mirrorName, tt.in.rules = "m", anyACL(t)
			if tt.in.active == nil {
				tt.in.active = []string{"t"}
			}
			p := planACLs(tt.in)
			if !slices.Equal(p.create, tt.create) || !slices.Equal(p.delete, tt.delete) {
				t.Errorf("create %v, delete %v", p.create, p.delete)
			}
			if !slices.Equal(p.put, tt.put) || !slices.Equal(p.drop, tt.drop) {
				t.Errorf("put %v, drop %v", p.put, p.drop)
			}
		})
	}
}

func TestRulesOnlySelectWhatIsNew(t *testing.T) {
	rules, _ := parseRules([]string{"GROUP;*"})
	read := acl(allow, "READ", "t", "User:a")
	p := planACLs(aclInput{mirrorName: "m", rules: rules, source: []kafka.ACL{read}, destination: []kafka.ACL{read}, records: owned(ownedCopy, read)})
	if p.changes() {
		t.Errorf("a rule that was taken out takes back what it brought: %+v", p)
	}
}

func TestPlanGrants(t *testing.T) {
	write := acl(allow, "WRITE", "t", "User:a")
	prefix := kafka.ACL{ResourceType: resourceTopic, PatternType: prefixed, ResourceName: "t", Operation: "WRITE", Permission: allow, Principal: "User:p", Host: anyName}
	part := partOf(prefix, "t")
	in := aclInput{mirrorName: "m", records: owned(ownedHeld, write, prefix), active: []string{"t2"}}
	p := planGrants(in, []string{"t"})
	if !slices.Equal(p.create, []kafka.ACL{write, part}) || !slices.Equal(p.drop, owned(ownedHeld, write)) ||
		!slices.Equal(p.put, slices.Concat(owned(ownedCopy, write), owned(ownedPart, part))) {
		t.Errorf("created %v, recorded %v, dropped %v: the prefix still covers a mirror topic, t has its part of it", p.create, p.put, p.drop)
	}
	in.active, in.destination, in.records = nil, []kafka.ACL{part}, slices.Concat(owned(ownedHeld, prefix), owned(ownedPart, part))
	p = planGrants(in, []string{"t2"})
	if !slices.Equal(p.create, []kafka.ACL{prefix}) || !slices.Equal(p.delete, []kafka.ACL{part}) {
		t.Errorf("created %v, deleted %v with the last topic", p.create, p.delete)
	}
	in.rules, in.active, in.source, in.frozen = anyACL(t), []string{"t", "t2"}, []kafka.ACL{prefix}, nil
	if p := planACLs(in); !slices.Equal(p.delete, []kafka.ACL{part}) || !slices.Equal(p.drop, owned(ownedPart, part)) {
		t.Errorf("deleted %v, dropped %v though t is mirrored again", p.delete, p.drop)
	}
	in.active, in.frozen = []string{"t2"}, map[string]bool{"t": true}
	if p := planACLs(in); p.changes() {
		t.Errorf("a part is touched while its topic is promoted and the rule waits: %+v", p)
	}
}

func TestPlanGuards(t *testing.T) {
	p := planGuards(aclInput{mirrorName: "m", destination: []kafka.ACL{guardOf("old"), guardOf("theirs")}, records: owned(ownedGuard, guardOf("old"))},
		[]string{"t", "theirs"})
	if !slices.Equal(p.create, []kafka.ACL{guardOf("t")}) || !slices.Equal(p.delete, []kafka.ACL{guardOf("old")}) {
		t.Errorf("create %v, delete %v", p.create, p.delete)
	}
	if !slices.Equal(p.put, owned(ownedGuard, guardOf("t"))) || !slices.Equal(p.drop, owned(ownedGuard, guardOf("old"))) {
		t.Errorf("put %v, drop %v", p.put, p.drop)
	}
}

func TestParseRules(t *testing.T) {
	a := acl(allow, "READ", "orders.eu", "User:app")
	for rule, want := range map[string]bool{
		"*": true, "topic": true, "TOPIC;orders.eu": true, "TOPIC;orders": false, "TOPIC;orders.*": true, "*;*;READ": true,
		"*;*;WRITE": false, "*;*;*;deny": false, "TOPIC;*;READ;ALLOW;User:app": true, "*;*;*;*;User:a.*": true, "GROUP": false, "": true,
	} {
		r, err := parseRule(rule)
		if err != nil || r.match(a) != want {
			t.Errorf("%q: match %v (%v), want %v", rule, r.match(a), err, want)
		}
	}
	for _, bad := range []string{"a;b;c;d;e;f", "TOPIC;(", "*;*;*;*;User:["} {
		if _, err := parseRule(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestBindingText(t *testing.T) {
	const stored = "held TOPIC PREFIXED orders.+x%3B WRITE ALLOW User%3ACN%3Da%2CO%3Db+c %2A" // a stored format
	a := kafka.ACL{
		ResourceType: resourceTopic, PatternType: prefixed, ResourceName: "orders. x;", Operation: "WRITE", Permission: allow,
		Principal: "User:CN=a,O=b c", Host: anyName,
	}
	if got := bindingText(ownedHeld, a); got != stored {
		t.Errorf("stored as %q", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String()
		a := kafka.ACL{
			ResourceType: s.Draw(t, "type"), ResourceName: s.Draw(t, "name"), PatternType: s.Draw(t, "pattern"), Principal: s.Draw(t, "principal"),
			Host: s.Draw(t, "host"), Operation: s.Draw(t, "operation"), Permission: s.Draw(t, "permission"),
		}
		o, back, err := parseBinding(bindingText(ownedGuard, a))
		if err != nil || o != ownedGuard || back != a {
			t.Fatalf("%+v came back as %v %+v, %v", a, o, back, err)
		}
	})
}

func FuzzParseBinding(f *testing.F) {
	f.Add(bindingText(ownedCopy, guardOf("t")))
	f.Fuzz(func(t *testing.T, text string) {
		if o, a, err := parseBinding(text); err == nil {
			if o2, a2, err := parseBinding(bindingText(o, a)); err != nil || o2 != o || a2 != a {
				t.Errorf("%q does not survive: %v %+v %v", text, o2, a2, err)
			}
		}
	})
}
