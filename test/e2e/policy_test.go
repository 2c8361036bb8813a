package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A destination that compacts by its own default, by a setting from before the mirror or by one made since loses records
// that the source keeps. The policy in force at the source is held, from before the first record is copied to after the
// stop (P1, SPEC §8.8).
func TestTheSourcesCleanupPolicyIsHeld(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.D.SetBrokers(t, "log.cleanup.policy", "compact")
	kept := cleaning[2:]
	for _, topic := range []string{"default", "existing"} {
		p.S.Topic(t, topic, 1, kept...)
		w := &churner{c: p.S, topic: topic, clock: time.Now()}
		w.write(t, 10)
		w.roll(t)
	}
	p.D.Topic(t, "existing", 1, cleaning...)
	m := NewDaemon(t, p.Mirror("default", "existing"))
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "default", "existing")
	must(t, errors.Join(p.D.wantSettings("default", "cleanup.policy", "delete"), p.D.wantSettings("existing", "cleanup.policy", "delete")))
	p.D.compacts(t, "probe")
	Identical(t, p.S, p.D, "default", "existing")
	m.Do("verify", "--config", m.ConfigFile(), "--mirror", "east", "--full")

	p.S.Set(t, "default", "cleanup.policy", "compact,delete")
	Eventually(t, soon, func() error { return p.D.wantSettings("default", "cleanup.policy", "compact,delete") })
	p.S.Set(t, "default", "cleanup.policy", "")
	Eventually(t, soon, func() error { return p.D.wantSettings("default", "cleanup.policy", "delete") })

	p.D.Set(t, "existing", "cleanup.policy", "compact")
	Eventually(t, soon, func() error { return p.D.wantSettings("existing", "cleanup.policy", "delete") })
	m.Do("stop", "--mirror", "east", "--topics", ".*")
	must(t, p.D.wantSettings("default", "cleanup.policy", "delete", "retention.ms", "-1"))

	p.D.Set(t, "existing", "cleanup.policy", "compact")
	p.D.cleaned(t, "existing", p.S.records(t, "existing"))
	r := m.Run("verify", "--config", m.ConfigFile(), "--mirror", "east", "--full")
	if r.Code != 1 || !strings.Contains(r.Out+r.Err, "the destination topic is compacted, the source's is not") {
		t.Errorf("verify of a copy that was compacted: exit code %d\n%s%s", r.Code, r.Out, r.Err)
	}
}

// compacts waits until the cluster's cleaner has seen to a compacted topic that is as dirty as any other.
func (c *Cluster) compacts(t *testing.T, topic string) {
	t.Helper()
	c.Topic(t, topic, 1, cleaning...)
	w := &churner{c: c, topic: topic, clock: time.Now()}
	w.write(t, 10)
	w.roll(t)
	c.cleaned(t, topic, 100)
}
