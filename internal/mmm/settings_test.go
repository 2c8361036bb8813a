package mmm

import (
	"maps"
	"slices"
	"testing"

	"mirrord/internal/kafka"
)

func allKnown(more ...string) map[string]bool {
	known := map[string]bool{
		keyMaxMessageBytes: true, keyCleanupPolicy: true, "delete.retention.ms": true, "flush.ms": true,
		"segment.ms": true, "min.insync.replicas": true, keyTimestampDifference: true,
	}
	for key := range forced {
		known[key] = true
	}
	for _, key := range more {
		known[key] = true
	}
	return known
}

func mirrored(more map[string]string) map[string]string {
	all := maps.Clone(forced)
	maps.Copy(all, more)
	return all
}

func TestPlanSettings(t *testing.T) {
	older := allKnown()
	delete(older, keyTimestampBefore)
	delete(older, keyTimestampAfter)
	type kv = map[string]string
	for _, tt := range []struct {
		name   string
		in     settingsInput
		set    kv
		remove []string
		source kv
		left   []string
	}{
		{
			name: "a new topic has everything from the start", in: settingsInput{source: topicSettings{explicit: kv{keyCleanupPolicy: "compact", "retention.ms": "60000"}}},
			set: mirrored(kv{keyCleanupPolicy: "compact"}), source: kv{keyCleanupPolicy: "compact", "retention.ms": "60000"},
		},
		{
			name: "more replicas in sync than there are", in: settingsInput{
				source: topicSettings{explicit: kv{"min.insync.replicas": "3"}}, destination: topicSettings{explicit: mirrored(nil)}, replicas: 2,
			},
			set: kv{"min.insync.replicas": "2"}, source: kv{"min.insync.replicas": "2"},
		},
		{
			name: "as many replicas in sync", in: settingsInput{
				source: topicSettings{explicit: kv{"min.insync.replicas": "2"}}, destination: topicSettings{explicit: mirrored(nil)}, replicas: 3,
			},
			set: kv{"min.insync.replicas": "2"}, source: kv{"min.insync.replicas": "2"},
		},
		{
			name: "replicas not known yet", in: settingsInput{
				source: topicSettings{explicit: kv{"min.insync.replicas": "2"}}, destination: topicSettings{explicit: mirrored(nil)},
			},
			source: kv{},
		},
		{name: "level", in: settingsInput{destination: topicSettings{explicit: forced}}, source: kv{}},
		{
			name: "drift is overwritten", in: settingsInput{
				source:      topicSettings{explicit: kv{"segment.ms": "5"}},
				destination: topicSettings{explicit: mirrored(kv{"segment.ms": "1", "retention.ms": "10"})},
			},
			set: kv{"segment.ms": "5", "retention.ms": "-1"}, source: kv{"segment.ms": "5"},
		},
		{name: "what only the destination has stays", in: settingsInput{destination: topicSettings{explicit: mirrored(kv{"flush.ms": "7"})}}, source: kv{}},
		{name: "what the source removed goes", in: settingsInput{
			owned:       []string{"segment.ms"},
			destination: topicSettings{explicit: mirrored(kv{"segment.ms": "5", "flush.ms": "7"})},
		}, remove: []string{"segment.ms"}, source: kv{}},
		{name: "an excluded key is not copied", in: settingsInput{
			source: topicSettings{explicit: kv{"min.insync.replicas": "2"}}, exclude: []string{"min.insync.replicas"},
			destination: topicSettings{explicit: forced},
		}, source: kv{}},
		{name: "a key excluded since is left as it is", in: settingsInput{
			owned: []string{"segment.ms"}, exclude: []string{"segment.ms"},
			destination: topicSettings{explicit: mirrored(kv{"segment.ms": "5"})},
		}, source: kv{}},
		{name: "forced keys win over excludes", in: settingsInput{exclude: []string{"retention.ms", "compression.type"}}, set: forced, source: kv{}},
		{name: "an unknown key is left out and told", in: settingsInput{
			source: topicSettings{explicit: kv{"new.key": "1"}}, known: allKnown(),
			destination: topicSettings{explicit: forced},
		}, left: []string{"new.key"}, source: kv{}},
		{
			name: "an older destination gets the older timestamp limit", in: settingsInput{known: older},
			set:    kv{"compression.type": "producer", "message.timestamp.type": "CreateTime", "retention.ms": "-1", "retention.bytes": "-1", keyTimestampDifference: maxInt64},
			source: kv{},
		},
		{name: "the size limit is raised though excluded", in: settingsInput{
			exclude:     []string{keyMaxMessageBytes},
			source:      topicSettings{explicit: kv{keyMaxMessageBytes: "5000000"}, maxMessageBytes: 5000000},
			destination: topicSettings{explicit: forced, maxMessageBytes: 1048588},
		}, set: kv{keyMaxMessageBytes: "5000000"}, source: kv{}},
		{name: "the size limit is not lowered by a source's default", in: settingsInput{
			source:      topicSettings{maxMessageBytes: 1048588},
			destination: topicSettings{explicit: forced, maxMessageBytes: 9000000},
		}, source: kv{}},
		{
			name: "the source's policy, though a default, is set", in: settingsInput{
				source: topicSettings{held: kv{keyCleanupPolicy: "delete"}}, destination: topicSettings{explicit: forced},
			},
			set: kv{keyCleanupPolicy: "delete"}, source: kv{keyCleanupPolicy: "delete"},
		},
		{
			name: "a policy of the destination's own gives way, whatever the excludes say", in: settingsInput{
				source: topicSettings{held: kv{keyCleanupPolicy: "delete"}}, exclude: []string{keyCleanupPolicy},
				destination: topicSettings{explicit: mirrored(kv{keyCleanupPolicy: "compact"})},
			},
			set: kv{keyCleanupPolicy: "delete"}, source: kv{keyCleanupPolicy: "delete"},
		},
		{
			name: "a policy that the source gave up makes way for its default", in: settingsInput{
				source: topicSettings{held: kv{keyCleanupPolicy: "delete"}}, owned: []string{keyCleanupPolicy},
				destination: topicSettings{explicit: mirrored(kv{keyCleanupPolicy: "compact"})},
			},
			set: kv{keyCleanupPolicy: "delete"}, source: kv{keyCleanupPolicy: "delete"},
		},
		{name: "where the log is kept is the destination's business", in: settingsInput{
			source:      topicSettings{explicit: kv{"remote.storage.enable": "true"}},
			destination: topicSettings{explicit: forced},
		}, source: kv{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := planSettings(tt.in)
			if !maps.Equal(p.set, tt.set) || !slices.Equal(p.remove, tt.remove) || !maps.Equal(p.source, tt.source) || !slices.Equal(p.left, tt.left) {
				t.Errorf("set %v, remove %v, source %v, left %v", p.set, p.remove, p.source, p.left)
			}
		})
	}
}

// Applying a plan leaves nothing to do, and what mirrord has set is owned.
func TestPlanSettingsSettles(t *testing.T) {
	in := settingsInput{
		source:      topicSettings{explicit: map[string]string{"segment.ms": "5", keyCleanupPolicy: "compact"}, maxMessageBytes: 2000000},
		destination: topicSettings{explicit: map[string]string{"flush.ms": "1", "delete.retention.ms": "9"}, maxMessageBytes: 1048588}, owned: []string{"delete.retention.ms"},
	}
	p := planSettings(in)
	maps.Copy(in.destination.explicit, p.set)
	for _, key := range p.remove {
		delete(in.destination.explicit, key)
	}
	in.destination.maxMessageBytes, in.owned = 2000000, p.owned
	if again := planSettings(in); again.changes() || in.destination.explicit["flush.ms"] != "1" {
		t.Errorf("not settled: %+v", again)
	}
	for key := range p.set {
		if !slices.Contains(p.owned, key) {
			t.Errorf("%s is set and not owned", key)
		}
	}
}

func TestPlanReturn(t *testing.T) {
	owned := []string{"compression.type", "message.timestamp.type", "retention.ms", "segment.ms"}
	source := map[string]string{"message.timestamp.type": "LogAppendTime", "segment.ms": "5", "retention.ms": "777"}
	now := mirrored(map[string]string{"segment.ms": "5", "flush.ms": "1"})
	set, remove := planReturn(owned, source, now)
	if !maps.Equal(set, map[string]string{"message.timestamp.type": "LogAppendTime", "retention.ms": "777"}) {
		t.Errorf("set %v", set)
	}
	if !slices.Equal(remove, []string{"compression.type"}) { // and the rest was not ours
		t.Errorf("remove %v", remove)
	}
}

func TestCleans(t *testing.T) {
	policy := func(value string) kafka.Configs {
		return kafka.Configs{Entries: map[string]kafka.ConfigEntry{keyCleanupPolicy: {Value: value}}}
	}
	for _, c := range []struct {
		source, destination kafka.Configs
		want                string
	}{
		{policy("delete"), policy("compact,delete"), "cleanup.policy=compact,delete"},
		{policy("delete"), policy("delete"), ""},
		{policy("compact"), policy("compact"), ""},
		{policy("compact,delete"), policy("compact"), ""},
		{policy("compact"), policy("delete"), ""},
		{kafka.Configs{}, policy("compact"), ""}, // the source does not tell
	} {
		if got := Cleans(c.source, c.destination); got != c.want {
			t.Errorf("%v, %v: %q, want %q", c.source, c.destination, got, c.want)
		}
	}
}

func TestMissing(t *testing.T) {
	entries := func(changed ...string) kafka.Configs {
		cs := kafka.Configs{Entries: map[string]kafka.ConfigEntry{}}
		for key, value := range forced {
			cs.Entries[key] = kafka.ConfigEntry{Value: value}
		}
		for i := 0; i+1 < len(changed); i += 2 {
			cs.Entries[changed[i]] = kafka.ConfigEntry{Value: changed[i+1]}
		}
		return cs
	}
	old := entries()
	delete(old.Entries, keyTimestampAfter) // unknown before Kafka 3.6
	for _, c := range []struct {
		name    string
		cs      kafka.Configs
		setting string
		harmful bool
	}{
		{"complete", entries("cleanup.policy", "compact"), "", false},
		{"old cluster", old, "", false},
		{"deletes", entries("retention.ms", "1000"), "retention.ms=1000", false},
		{"stamps", entries("retention.ms", "1000", keyTimestampType, "LogAppendTime"), "message.timestamp.type=LogAppendTime", true},
	} {
		if setting, harmful := Missing(c.cs); setting != c.setting || harmful != c.harmful {
			t.Errorf("%s: %q, %v", c.name, setting, harmful)
		}
	}
}
