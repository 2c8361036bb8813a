package e2e

import (
	"fmt"
	"testing"
	"time"
)

// diverged makes topics of one partition that have FAILED, for both sides went on after a stop: 100 records are common,
// ten of the source's own, 40 of the destination's own.
func (p *Pair) diverged(t *testing.T, topics ...string) *Daemon {
	t.Helper()
	for _, topic := range topics {
		p.S.Topic(t, topic, 1)
		p.S.Send(t, nil, Numbered(topic, 0, 0, 100)...)
	}
	m := NewDaemon(t, p.Proxied(topics...))
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, topics...)
	m.Do("stop", "--mirror", "east", "--topics", ".*")
	for _, topic := range topics {
		p.S.Send(t, nil, Numbered(topic, 0, 1000, 10)...)
		p.D.Send(t, nil, Numbered(topic, 0, 2000, 40)...)
	}
	m.Do("start", "--mirror", "east", "--topics", ".*", "--no-wait")
	m.Await("FAILED", soon, topics...)
	return m
}

// Topics are about to be reseeded when the operator fails over: stop is answered at once, and what it has promoted, the
// only copy from then on, is not deleted, neither the topic that is being exported nor one that still waits for that.
func TestStopEndsAReseed(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	topics := []string{"a", "b"}
	m := p.diverged(t, topics...)
	ids := map[string]any{"a": p.D.TopicID(t, "a"), "b": p.D.TopicID(t, "b")}
	proxy := p.S.Nodes[0].Proxy
	proxy.Hold(keyFetch) // the export asks what the source shares
	m.Do("recover", "--mirror", "east", "--topics", ".*", "--reseed", "--no-wait")
	Eventually(t, soon, func() error {
		if proxy.Held() == 0 {
			return fmt.Errorf("no export yet")
		}
		return nil
	})
	if r := m.Do("stop", "--mirror", "east", "--topics", ".*"); r.Took > 10*time.Second {
		t.Errorf("stop took %v", r.Took)
	}
	for _, topic := range topics {
		p.D.Send(t, nil, Numbered(topic, 0, 3000, 100)...)
	}
	proxy.Heal()
	Eventually(t, soon, func() error { return m.wantLog("command executed", "command=recover", "count=2", "refused=2") })
	for _, topic := range topics {
		must(t, m.wantState(topic, 0, "STOPPED", ""))
		must(t, p.D.wantEnd(topic, 0, 240))
		if id := p.D.TopicID(t, topic); id != ids[topic] {
			t.Errorf("topic %s was recreated: %v, was %v", topic, id, ids[topic])
		}
	}
}

// A start that waits for a source out of reach is overtaken by a stop: once the source answers, the topic stays promoted.
func TestStopOvertakesAStartThatWaits(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 1)
	p.S.Send(t, nil, Numbered("t", 0, 0, 10)...)
	m := NewDaemon(t, p.Proxied("t"))
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "t")
	m.Do("stop", "--mirror", "east", "--topics", "t")
	p.S.Nodes[0].Proxy.BlackHole()
	m.Do("start", "--mirror", "east", "--topics", "t", "--no-wait")
	m.Do("stop", "--mirror", "east", "--topics", "t")
	p.D.Send(t, nil, Numbered("t", 0, 10, 5)...) // the application has moved
	p.S.Nodes[0].Proxy.Heal()
	Eventually(t, soon, func() error { return m.wantLog("command executed", "command=start", "refused=1") })
	m.refreshed(2)
	must(t, m.wantState("t", 0, "STOPPED", ""))
}

// One partition of a topic has diverged, the other is mirrored, and the source is in use. The topic is recreated at the
// first attempt: mirrord does not take its own writes for somebody else's.
func TestReseedWhileASiblingIsMirrored(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 2)
	p.S.Send(t, nil, append(Numbered("t", 0, 0, 100), Numbered("t", 1, 0, 100)...)...)
	m := NewDaemon(t, p.Mirror("t"))
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "t")
	m.Do("stop", "--mirror", "east", "--topics", "t")
	p.S.Send(t, nil, Numbered("t", 0, 1000, 20)...)
	own := Numbered("t", 0, 2000, 3000)
	p.D.Send(t, nil, own...)
	load := StartLoad(t, p.S, 200, 2, "t")
	m.Do("start", "--mirror", "east", "--topics", "t", "--no-wait")
	Eventually(t, soon, func() error { return m.wantState("t", 0, "FAILED", "differs") })
	Eventually(t, soon, func() error { return m.wantState("t", 1, "MIRRORING", "") })
	m.Do("recover", "--mirror", "east", "--topics", "t", "--reseed")
	load.Stop(t)
	AwaitLevel(t, p.S, p.D, soon, "t")
	Identical(t, p.S, p.D, "t")
	producedBack(t, p.D, m.dir, own)
}
