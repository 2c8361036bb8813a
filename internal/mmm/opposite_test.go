package mmm

import (
	"context"
	"slices"
	"testing"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// theOther is what the source's state says of mirror "back", which takes topics from cluster D.
func theOther(t *testing.T, recs ...statestore.Record) Opposite {
	t.Helper()
	m := newMemory()
	def := statestore.Mirror{Definition: mirror.DefaultDefinition("back"), LearntClusterID: "D"}
	must(t, m.put(t.Context(), "back", append([]statestore.Record{def}, recs...)...))
	for _, r := range recs {
		if s, ok := r.(statestore.PartitionState); ok {
			m.states[s.Partition] = s
		}
	}
	return OppositeIn(m, "D")
}

func backTopic(change func(*statestore.Topic)) statestore.Topic {
	t := statestore.Topic{Mirror: "back", Name: "t", SourceID: id('d'), DestinationID: id('s'), Partitions: 1, Wish: mirror.Mirroring}
	if change != nil {
		change(&t)
	}
	return t
}

func backState(s mirror.State, k mirror.Kind) statestore.PartitionState {
	return statestore.PartitionState{Partition: mirror.Partition{Mirror: "back", TopicID: id('d')}, Topic: "t", State: s, Kind: k}
}

// Only a mirror that is at work, or may have left something behind, makes a circle.
func TestOppositeLoop(t *testing.T) {
	circular := statestore.Finding{Kind: mirror.Loop, Message: "x"}
	for name, c := range map[string]struct {
		recs    []statestore.Record
		loop    bool
		dormant bool
	}{
		"none":                          {nil, false, false},
		"at work":                       {[]statestore.Record{backTopic(nil)}, true, false},
		"comparing":                     {[]statestore.Record{backTopic(nil), backState(mirror.LogTruncation, 0)}, true, false},
		"stopped":                       {[]statestore.Record{backTopic(func(t *statestore.Topic) { t.Wish, t.Promoted = mirror.Stopped, true })}, false, false},
		"being stopped":                 {[]statestore.Record{backTopic(func(t *statestore.Topic) { t.Wish = mirror.Stopped })}, true, false},
		"never begun":                   {[]statestore.Record{backTopic(func(t *statestore.Topic) { t.DestinationID = mirror.TopicID{} })}, false, true},
		"refused for a circle":          {[]statestore.Record{backTopic(func(t *statestore.Topic) { t.Finding = circular })}, false, true},
		"found when it compared":        {[]statestore.Record{backTopic(nil), backState(mirror.Failed, mirror.Loop)}, false, true},
		"failed for something else":     {[]statestore.Record{backTopic(nil), backState(mirror.Failed, mirror.Unreachable)}, true, false},
		"refused, and recovered":        {[]statestore.Record{backTopic(func(t *statestore.Topic) { t.Rearm = 1 }), backState(mirror.Failed, mirror.Loop)}, true, false},
		"refused with settings of it":   {[]statestore.Record{backTopic(nil), backState(mirror.Failed, mirror.Loop), statestore.TopicSettings{Mirror: "back", Topic: "t", Owned: []string{"retention.ms"}}}, true, false},
		"refused with a topic on trial": {[]statestore.Record{backTopic(nil), backState(mirror.Failed, mirror.Loop), statestore.TopicSettings{Mirror: "back", Topic: "t", Trial: id('s')}}, true, false},
	} {
		o := theOther(t, c.recs...)
		if err := o.Loop("t"); (err != nil) != c.loop || c.loop && mirror.KindOf(err) != mirror.Loop {
			t.Errorf("%s: %v", name, err)
		}
		if o.Dormant("t") != c.dormant || o.Dormant("u") || o.Loop("u") != nil {
			t.Errorf("%s: dormant %v", name, o.Dormant("t"))
		}
	}
}

// A topic that the source takes from here is not taken over, whatever stood here is left as it is, until the source has let
// go of it (SPEC §7, P5).
func TestACircleIsRefusedBeforeAnythingIsTouched(t *testing.T) {
	t.Setenv("MMM_TEST_PASSWORD", "secret")
	o := withACLs("mirrord", true)
	o.define = including("t", "u")
	r := newRig(t, o)
	for _, topic := range []string{"t", "u"} {
		must(t, r.fs.CreateTopic(topic, 1, nil), r.fd.CreateTopic(topic, 1, map[string]string{"retention.ms": "777"}))
	}
	other := make(chan Opposite, 1)
	other <- theOther(t, backTopic(nil))
	r.deps.Opposite = func(context.Context, statestore.Mirror) (Opposite, error) {
		o := <-other
		other <- o
		return o, nil
	}
	touched := func(topic string) bool {
		return slices.Contains(r.aclsOf(r.dst), guardOf(topic)) || r.setting(topic, "retention.ms") != "777" || r.setting(topic, "compression.type") != ""
	}
	r.run()
	r.eventually("the circle is found", func() bool { return r.record("t").Finding.Kind == mirror.Loop })
	r.eventually("the other topic is begun", func() bool { return touched("u") && !r.record("u").Unready })
	r.cycles(2)
	if now := r.record("t"); touched("t") || now.DestinationID.IsZero() || now.Partitions != 1 {
		t.Errorf("%+v, rules %v", now, r.aclsOf(r.dst))
	}
	r.wish("t", func(t *statestore.Topic) { t.Rearm, t.Finding, t.Unready = t.Rearm+1, statestore.Finding{}, true })
	r.eventually("it is found again", func() bool { return r.record("t").Finding.Kind == mirror.Loop })
	if touched("t") {
		t.Error("touched after recover")
	}
	<-other
	other <- Opposite{}
	r.wish("t", func(t *statestore.Topic) { t.Rearm, t.Finding, t.Unready = t.Rearm+1, statestore.Finding{}, true })
	r.eventually("it is begun", func() bool { return touched("t") && !r.record("t").Unready })
}

// While the source's state cannot be read, nothing that is there already is begun, and the topic says so.
func TestNothingIsBegunWhileACircleCannotBeRuledOut(t *testing.T) {
	r := newRig(t, rigOptions{define: including("t", "new")})
	r.topic("t", 1, 5)
	r.topic("new", 1, 5)
	if err := r.fd.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	r.deps.Opposite = func(context.Context, statestore.Mirror) (Opposite, error) {
		return Opposite{}, mirror.Errorf(mirror.Unreachable, "no answer")
	}
	r.run()
	r.eventually("it says so", func() bool { return r.record("t").Message == "whether it would go in a circle is not known: no answer" })
	r.eventually("a topic that is not there is created", func() bool { return !r.record("new").DestinationID.IsZero() })
	if !r.record("t").DestinationID.IsZero() || r.setting("t", "compression.type") != "" {
		t.Errorf("begun: %+v", r.record("t"))
	}
}
