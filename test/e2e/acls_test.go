package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Access rules follow the source, between clusters with an authorizer on both sides, where mirrord is a super user
// (SPEC §9). The rules of all parts are about one mirror.
func TestRightsFollowTheSource(t *testing.T) {
	t.Parallel()
	p := GuardedPair(t)
	p.D.Grant(t, "DENY WRITE User:* TOPIC LITERAL own-guard") // an operator's own
	p.D.Grant(t, "ALLOW READ User:app TOPIC LITERAL same")
	m := NewDaemon(t, p.As(t, SuperUser, ".*"))
	m.Start()
	for name, rule := range map[string]func(*testing.T, Pair, *Daemon){
		"kept exactly": rightsKept, "removed": rightsRemoved, "writing waits": rightsWait, "all but writing": rightsAll,
		"prefixes wait for each topic": rightsPrefix, "taken back": rightsTakenBack, "revoked while held": rightsRevoked,
		"guards of others": rightsGuards, "paused": rightsPaused, "one refused": rightsOneRefused,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rule(t, p, m.In(t))
		})
	}
}

// wantRights waits for access rules at the destination.
func wantRights(t *testing.T, p Pair, rules ...string) {
	t.Helper()
	Eventually(t, soon, func() error { return p.D.wantACLs(rules...) })
}

func rightsKept(t *testing.T, p Pair, m *Daemon) {
	filled(t, p, "kept", 1)
	rules := []string{
		"ALLOW READ User:app TOPIC LITERAL kept", "ALLOW READ User:app TOPIC PREFIXED kep", "ALLOW DESCRIBE User:app TOPIC LITERAL *",
		"DENY READ User:other TOPIC LITERAL kept", "DENY WRITE User:other TOPIC PREFIXED kept", "ALLOW READ User:app GROUP PREFIXED kept-",
		"ALLOW DESCRIBE User:* GROUP LITERAL *", "ALLOW IDEMPOTENT_WRITE User:app CLUSTER LITERAL kafka-cluster",
		"ALLOW WRITE User:app TRANSACTIONAL_ID LITERAL kept", "DENY DESCRIBE User:CN=with,O=commas TOPIC LITERAL kept",
		"ALLOW WRITE User:app TOPIC LITERAL nobody-mirrors-this",
	}
	p.S.Grant(t, rules...)
	wantRights(t, p, rules...)
}

// What the source takes back goes, the last rule too; what mirrord did not create stays, though the source once had it.
func rightsRemoved(t *testing.T, p Pair, m *Daemon) {
	filled(t, p, "removed", 1)
	filled(t, p, "same", 1)
	one, two, same := "ALLOW READ User:app TOPIC LITERAL removed", "ALLOW READ User:other TOPIC LITERAL removed", "ALLOW READ User:app TOPIC LITERAL same"
	local := "ALLOW DESCRIBE User:local TOPIC LITERAL removed"
	p.D.Grant(t, local)
	p.S.Grant(t, one, two, same)
	wantRights(t, p, one, two, same)
	p.S.Revoke(t, two, same)
	wantRights(t, p, one, "no "+two)
	p.S.Revoke(t, one)
	wantRights(t, p, "no "+one, local, same)
}

// Rights to write a mirror topic wait until it is STOPPED; meanwhile a guard keeps everybody out who is no super user.
func rightsWait(t *testing.T, p Pair, m *Daemon) {
	const topic = "waits"
	filled(t, p, topic, 10)
	write, guard := "ALLOW WRITE User:app TOPIC LITERAL waits", "DENY WRITE User:* TOPIC LITERAL waits"
	p.S.Grant(t, write, "ALLOW READ User:app TOPIC LITERAL waits", "ALLOW ALTER_CONFIGS User:app TOPIC LITERAL waits")
	must(t, p.S.ProduceAs(App, topic))
	wantRights(t, p, "ALLOW READ User:app TOPIC LITERAL waits", guard)
	AwaitLevel(t, p.S, p.D, soon, topic)
	m.refreshed(1)
	must(t, p.D.wantACLs("no "+write, "no ALLOW ALTER_CONFIGS User:app TOPIC LITERAL waits"))
	if p.D.ProduceAs(App, topic) == nil {
		t.Error("an application can write to a mirror topic")
	}
	m.Do("stop", "--mirror", "east", "--topics", topic)
	Eventually(t, 10*time.Second, func() error {
		return p.D.wantACLs(write, "ALLOW ALTER_CONFIGS User:app TOPIC LITERAL waits", "no "+guard)
	})
	Eventually(t, 10*time.Second, func() error { return p.D.ProduceAs(App, topic) })
	must(t, p.D.wantEnd(topic, 0, 12))
}

// ALL grants reading too, which is given at once.
func rightsAll(t *testing.T, p Pair, m *Daemon) {
	filled(t, p, "all", 1)
	all := "ALLOW ALL User:app TOPIC LITERAL all"
	p.S.Grant(t, all)
	wantRights(t, p, "ALLOW READ User:app TOPIC LITERAL all", "ALLOW DESCRIBE_CONFIGS User:app TOPIC LITERAL all", "no "+all)
	m.Do("stop", "--mirror", "east", "--topics", "all")
	wantRights(t, p, all)
	Eventually(t, 10*time.Second, func() error { return p.D.ProduceAs(App, "all") })
}

// A rule about several topics waits for the last of them; until then each promoted topic has its part of it.
func rightsPrefix(t *testing.T, p Pair, m *Daemon) {
	filled(t, p, "prefix-1", 1)
	filled(t, p, "prefix-2", 1)
	wide := "ALLOW WRITE User:app TOPIC PREFIXED prefix-"
	part := []string{"ALLOW WRITE User:app TOPIC LITERAL prefix-1", "ALLOW WRITE User:app TOPIC LITERAL prefix-2"}
	p.S.Grant(t, wide)
	m.refreshed(1)
	must(t, p.D.wantACLs("no "+wide))
	m.Do("stop", "--mirror", "east", "--topics", "prefix-1")
	wantRights(t, p, part[0], "no "+part[1], "no "+wide)
	Eventually(t, 10*time.Second, func() error { return p.D.ProduceAs(App, "prefix-1") })
	m.refreshed(1)
	must(t, p.D.wantACLs(part[0], "no "+part[1], "no "+wide))
	if p.D.ProduceAs(App, "prefix-2") == nil {
		t.Error("an application can write to a topic that is still mirrored")
	}
	m.Do("stop", "--mirror", "east", "--topics", "prefix-2")
	wantRights(t, p, wide, "no "+part[0], "no "+part[1])
	Eventually(t, 10*time.Second, func() error {
		return errors.Join(p.D.ProduceAs(App, "prefix-1"), p.D.ProduceAs(App, "prefix-2"))
	})
}

// A topic that is mirrored again is guarded again, and the rights that its stop had granted wait again.
func rightsTakenBack(t *testing.T, p Pair, m *Daemon) {
	const topic = "back"
	filled(t, p, topic, 10)
	write, guard := "ALLOW WRITE User:app TOPIC LITERAL back", "DENY WRITE User:* TOPIC LITERAL back"
	p.S.Grant(t, write)
	wantRights(t, p, guard)
	m.refreshed(1)
	m.Do("stop", "--mirror", "east", "--topics", topic)
	wantRights(t, p, write, "no "+guard)
	m.Do("start", "--mirror", "east", "--topics", topic)
	wantRights(t, p, "no "+write, guard)
	p.S.Send(t, nil, Numbered(topic, 0, 10, 5)...)
	AwaitLevel(t, p.S, p.D, soon, topic)
	m.Do("stop", "--mirror", "east", "--topics", topic)
	wantRights(t, p, write, "no "+guard)
}

// A right that the source takes back while it waits is not granted.
func rightsRevoked(t *testing.T, p Pair, m *Daemon) {
	filled(t, p, "revoked", 1)
	write := "ALLOW WRITE User:app TOPIC LITERAL revoked"
	p.S.Grant(t, write)
	m.refreshed(1)
	p.S.Revoke(t, write)
	m.refreshed(1)
	m.Do("stop", "--mirror", "east", "--topics", "revoked")
	wantRights(t, p, "no DENY WRITE User:* TOPIC LITERAL revoked")
	must(t, p.D.wantACLs("no "+write))
}

// A guard of a mirror that ends at the source is not copied; one of the same words that an operator made here is kept.
func rightsGuards(t *testing.T, p Pair, m *Daemon) {
	filled(t, p, "guards", 1)
	filled(t, p, "own-guard", 1)
	p.S.Grant(t, "DENY WRITE User:* TOPIC LITERAL nobody", "DENY WRITE User:* TOPIC LITERAL guards")
	m.refreshed(2)
	must(t, p.D.wantACLs("no DENY WRITE User:* TOPIC LITERAL nobody", "DENY WRITE User:* TOPIC LITERAL guards"))
	m.Do("stop", "--mirror", "east", "--topics", "guards,own-guard")
	wantRights(t, p, "no DENY WRITE User:* TOPIC LITERAL guards", "DENY WRITE User:* TOPIC LITERAL own-guard")
}

// A paused topic stays guarded, and its rules are left as they are.
func rightsPaused(t *testing.T, p Pair, m *Daemon) {
	filled(t, p, "pause", 1)
	read, guard := "ALLOW READ User:app TOPIC LITERAL pause", "DENY WRITE User:* TOPIC LITERAL pause"
	p.S.Grant(t, read)
	wantRights(t, p, read, guard)
	m.Do("pause", "--mirror", "east", "--topics", "pause")
	p.S.Revoke(t, read)
	m.refreshed(2)
	must(t, p.D.wantACLs(read, guard))
	m.Do("resume", "--mirror", "east", "--topics", "pause")
	wantRights(t, p, "no "+read, guard)
}

// With an authorizer on one side only there is nothing to copy to or from. It is said once, and all else goes on.
func TestRightsWithOneAuthorizer(t *testing.T) {
	t.Parallel()
	with, without := GuardedPair(t), SharedPair(t)
	for name, c := range map[string]struct {
		p      Pair
		source bool // the source is the side with the authorizer
	}{
		"source": {Pair{with.S, without.D}, true}, "destination": {Pair{without.S, with.D}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.p.Mirror("t")
			guard, said := "no DENY WRITE User:* TOPIC LITERAL t", "the destination has no authorizer"
			if c.source {
				s.Source, s.SourceSecurity = c.p.S.Proxied(), Login(t, SuperUser)
				c.p.S.Grant(t, "ALLOW READ User:app TOPIC LITERAL t")
			} else {
				s.Destination, s.Security, s.Direct = c.p.D.Proxied(), Login(t, SuperUser), c.p.D.Bootstrap()
				guard, said = "DENY WRITE User:* TOPIC LITERAL t", "the source has no authorizer"
			}
			c.p.S.Topic(t, "t", 1, "segment.ms", "7200000")
			c.p.S.Send(t, nil, Numbered("t", 0, 0, 10)...)
			c.p.S.Commit(t, "g", "t", 0, 5)
			m := NewDaemon(t, s)
			m.Start()
			AwaitLevel(t, c.p.S, c.p.D, soon, "t")
			Eventually(t, soon, func() error {
				return errors.Join(c.p.D.wantSettings("t", "segment.ms", "7200000"), c.p.D.wantCommitted("g", "t", 0, 5), c.p.D.wantACLs(guard))
			})
			m.refreshed(3)
			must(t, m.wantTold("ACLs are not mirrored", said))
			if n := m.logLines("ACLs not mirrored", said); n != 1 {
				t.Errorf("%d log lines say that %s", n, said)
			}
			for _, step := range []string{"acls", "guard"} {
				if n := m.Metric("mirrord_refresh_errors_total", `step="`+step+`"`); n != 0 {
					t.Errorf("%v errors of step %s", n, step)
				}
			}
			m.Do("stop", "--mirror", "east", "--topics", "t")
			must(t, c.p.D.wantACLs("no DENY WRITE User:* TOPIC LITERAL t"))
		})
	}
}

// everything is what a user who is no super user needs to be able to do all that mirrord does.
func everything(user string) (rules []string) {
	for _, on := range []string{"TOPIC LITERAL *", "GROUP LITERAL *", "CLUSTER LITERAL kafka-cluster", "TRANSACTIONAL_ID LITERAL *"} {
		rules = append(rules, "ALLOW ALL User:"+user+" "+on)
	}
	return rules
}

// The guard would bind mirrord itself if it is no super user. Under auto it is left out then, which is said once; under
// acl that is an error for as long as it lasts, and check says it beforehand.
func TestReadOnlyNeedsASuperUser(t *testing.T) {
	t.Parallel()
	p := GuardedPair(t)
	for _, c := range []*Cluster{p.S, p.D} {
		c.Grant(t, everything(Limited)...)
	}
	filledAlone := func(topic string) {
		p.S.Topic(t, topic, 1)
		p.S.Send(t, nil, Numbered(topic, 0, 0, 10)...)
	}
	filledAlone("t")
	s := p.As(t, Limited, "t")
	m := NewDaemon(t, s)
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "t")
	m.refreshed(2)
	must(t, p.D.wantACLs("no DENY WRITE User:* TOPIC LITERAL t"))
	must(t, m.wantTold("mirror topics are not guarded", "super.users"))
	if n := m.logLines("mirror topics are not guarded", "super.users"); n != 1 {
		t.Errorf("%d log lines say that topics are not guarded", n)
	}
	if n := m.Metric("mirrord_refresh_errors_total", `step="guard"`); n != 0 {
		t.Errorf("%v errors of the guard under auto", n)
	}
	s.MirrorExtra = []string{"read_only: acl"}
	m.Write(s)
	m.Reload()
	Eventually(t, soon, func() error {
		if n := m.Metric("mirrord_refresh_errors_total", `step="guard"`); n < 2 {
			return fmt.Errorf("%v errors of the guard under acl", n)
		}
		return nil
	})
	p.S.Send(t, nil, Numbered("t", 0, 10, 10)...)
	AwaitLevel(t, p.S, p.D, soon, "t")
	if r := m.check(); r.Code != 0 || !strings.Contains(r.Out, "super.users") {
		t.Errorf("check ends with %d:\n%s%s", r.Code, r.Out, r.Err)
	}
	if r := NewDaemon(t, p.As(t, SuperUser, "t")).check(); r.Code != 0 || !strings.Contains(r.Out, "will be guarded") {
		t.Errorf("check of a super user ends with %d:\n%s%s", r.Code, r.Out, r.Err)
	}
}
