package mmm

import (
	"context"
	"io"
	"maps"
	"slices"
	"testing"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// theirs are settings that a mirror topic must not have, or that would be lost with a source's.
var theirs = map[string]string{
	"retention.ms": "-1", "retention.bytes": "1000000", "compression.type": "zstd", keyTimestampType: "LogAppendTime", keyCleanupPolicy: "delete",
}

// older are the settings of a mirror on a cluster that knows one timestamp limit only, as the fake one does, and more.
func older(more ...string) map[string]string {
	all := mirrored(map[string]string{keyTimestampDifference: maxInt64})
	delete(all, keyTimestampBefore)
	delete(all, keyTimestampAfter)
	for i := 0; i+1 < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// trialRig has topic t on both sides: at the source compacted and deleted soon, at the destination somebody's own. handed
// counts how often it was handed over to the comparison.
func trialRig(t *testing.T, outcome mirror.State) (r *rig, handed func() int) {
	t.Helper()
	t.Setenv("MMM_TEST_PASSWORD", "secret")
	o := withACLs("mirrord", true)
	o.define = including("t")
	r = newRig(t, o)
	must(t, r.fs.CreateTopic("t", 2, map[string]string{keyCleanupPolicy: "compact", "retention.ms": "1000", "segment.ms": "5000"}), r.fd.CreateTopic("t", 2, theirs))
	r.state.compared = map[string]mirror.State{"t": outcome}
	var times int
	r.deps.Put = func(ctx context.Context, name string, recs ...statestore.Record) error {
		for _, rec := range recs {
			if now, ok := rec.(statestore.Topic); ok && r.record("t").Unready && !now.Unready {
				times++
				if !slices.Contains(r.aclsOf(r.dst), guardOf("t")) || !r.explicitly("t", older(keyCleanupPolicy, "delete")) {
					t.Errorf("handed over with %v", r.dst.TopicConfigs(ctx, "t")["t"].Explicit())
				}
			}
		}
		return r.state.put(ctx, name, recs...)
	}
	return r, func() int {
		r.state.mu.Lock()
		defer r.state.mu.Unlock()
		return times
	}
}

// explicitly reports whether a destination topic has just these settings of its own.
func (r *rig) explicitly(topic string, want map[string]string) bool {
	return maps.Equal(r.dst.TopicConfigs(r.t.Context(), topic)[topic].Explicit(), want)
}

func (r *rig) guarded() bool { return slices.Contains(r.aclsOf(r.dst), guardOf("t")) }

// A topic that turns out to be somebody else's has its own settings again, and its writers, however often it is tried; a
// stop changes nothing (P5).
func TestATopicThatIsNoCopyIsGivenBack(t *testing.T) {
	r, handed := trialRig(t, mirror.Failed)
	r.run()
	again := func(n int) {
		t.Helper()
		r.eventually("it is given back", func() bool { s, _ := r.state.Settings("m", "t"); return s.Untouched && handed() == n && !r.guarded() })
		if !r.explicitly("t", theirs) || !r.record("t").Unready {
			t.Errorf("given back with %v", r.dst.TopicConfigs(t.Context(), "t")["t"].Explicit())
		}
	}
	again(1)
	r.cycles(3)
	again(1)
	r.wish("t", func(t *statestore.Topic) { t.Rearm++ })
	again(2)
	r.wish("t", stop)
	r.eventually("it is promoted", func() bool { return r.record("t").Promoted })
	if !r.explicitly("t", theirs) || r.guarded() {
		t.Errorf("stopped with %v", r.dst.TopicConfigs(t.Context(), "t")["t"].Explicit())
	}
	r.wish("t", func(t *statestore.Topic) {
		t.Wish, t.Promoted, t.Unready, t.Rearm = mirror.Mirroring, false, true, t.Rearm+1
	})
	again(3)
}

// A stop before the comparison has come to an end leaves the topic as it was.
func TestATopicThatIsStoppedBeforeItWasComparedIsGivenBack(t *testing.T) {
	r, handed := trialRig(t, mirror.LogTruncation)
	r.run()
	r.eventually("it is being compared", func() bool { return handed() == 1 })
	r.cycles(3)
	if !r.guarded() || !r.explicitly("t", older(keyCleanupPolicy, "delete")) {
		t.Errorf("while it is compared: %v", r.dst.TopicConfigs(t.Context(), "t")["t"].Explicit())
	}
	r.wish("t", stop)
	r.eventually("it is promoted", func() bool { return r.record("t").Promoted })
	if s, _ := r.state.Settings("m", "t"); !r.explicitly("t", theirs) || r.guarded() || !s.Untouched {
		t.Errorf("stopped with %v, on record %+v", r.dst.TopicConfigs(t.Context(), "t")["t"].Explicit(), s)
	}
}

// A topic that is found to be a copy is a mirror topic like any other from then on.
func TestATopicThatIsACopyFollowsTheSource(t *testing.T) {
	r, handed := trialRig(t, mirror.LogTruncation)
	r.run()
	r.eventually("it is being compared", func() bool { return handed() == 1 })
	r.state.mu.Lock()
	delete(r.state.compared, "t")
	r.state.mu.Unlock()
	r.wish("t", func(*statestore.Topic) {})
	want := older(keyCleanupPolicy, "compact", "segment.ms", "5000")
	r.eventually("it has the source's settings", func() bool { return r.explicitly("t", want) })
	if s, _ := r.state.Settings("m", "t"); s.Untouched || !s.Trial.IsZero() || len(s.Own) > 0 {
		t.Errorf("on record %+v", s)
	}
	r.wish("t", stop)
	r.eventually("it is promoted", func() bool { return r.record("t").Promoted })
	if !r.explicitly("t", map[string]string{keyCleanupPolicy: "compact", "segment.ms": "5000", "retention.ms": "1000"}) || r.guarded() {
		t.Errorf("stopped with %v", r.dst.TopicConfigs(t.Context(), "t")["t"].Explicit())
	}
}

// Nothing that a topic on trial is given can cost it a record.
func TestSettingsOfATopicOnTrial(t *testing.T) {
	type kv = map[string]string
	for name, c := range map[string]struct {
		source, here kv
		largest      int64
		want         kv
	}{
		"the source's own wait":      {source: kv{"segment.ms": "5", "max.compaction.lag.ms": "1"}, want: mirrored(nil)},
		"compaction waits":           {source: kv{keyCleanupPolicy: "compact"}, here: kv{keyCleanupPolicy: "delete"}, want: mirrored(nil)},
		"compaction is ended":        {source: kv{keyCleanupPolicy: "delete"}, here: kv{keyCleanupPolicy: "compact"}, want: mirrored(kv{keyCleanupPolicy: "delete"})},
		"the size limit is raised":   {largest: 2000000, want: mirrored(kv{keyMaxMessageBytes: "2000000"})},
		"the size limit is not less": {source: kv{keyMaxMessageBytes: "1000"}, largest: 1000, want: mirrored(nil)},
	} {
		p := planSettings(settingsInput{
			trial:       true,
			source:      topicSettings{explicit: c.source, held: c.source, maxMessageBytes: c.largest},
			destination: topicSettings{explicit: c.here, held: c.here, maxMessageBytes: 1048588},
		})
		if !maps.Equal(p.set, c.want) || len(p.remove) > 0 {
			t.Errorf("%s: set %v, remove %v", name, p.set, p.remove)
		}
	}
}

// A topic that was given back is guarded again before it is exported and recreated: what its writers wrote in between were lost.
func TestATopicThatWasGivenBackIsGuardedWhileItIsRecreated(t *testing.T) {
	r, handed := trialRig(t, mirror.Failed)
	guarded := false
	r.deps.Tail = func(context.Context, string, statestore.Topic, int32, io.Writer) (int64, error) {
		guarded = r.guarded()
		return 0, nil
	}
	r.run()
	r.eventually("it is given back", func() bool { s, _ := r.state.Settings("m", "t"); return s.Untouched && handed() == 1 && !r.guarded() })
	old := r.record("t")
	_, err := r.manager.Reseed(t.Context(), "m", "t", agreed)
	must(t, err)
	if now := r.record("t"); !guarded || now.DestinationID == old.DestinationID {
		t.Errorf("guarded %v, recreated %+v", guarded, now)
	}
}
