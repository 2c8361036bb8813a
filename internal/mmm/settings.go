package mmm

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// Keys of topic settings that get special treatment.
const (
	keyMaxMessageBytes     = "max.message.bytes"
	keyCleanupPolicy       = "cleanup.policy"
	keyMinInsync           = "min.insync.replicas"
	keyTimestampType       = "message.timestamp.type"
	keyTimestampBefore     = "message.timestamp.before.max.ms"
	keyTimestampAfter      = "message.timestamp.after.max.ms"
	keyTimestampDifference = "message.timestamp.difference.max.ms"
)

var maxInt64 = strconv.FormatInt(math.MaxInt64, 10)

// forced are the settings that a mirror topic has whatever the source or the excludes say: the log is to be stored as it
// comes, and the source decides when records go (SPEC §8.8). They end at STOPPED.
var forced = map[string]string{
	"compression.type": "producer",
	keyTimestampType:   "CreateTime",
	"retention.ms":     "-1",
	"retention.bytes":  "-1",
	keyTimestampBefore: maxInt64,
	keyTimestampAfter:  maxInt64,
}

// held are settings that decide which records a log keeps. A mirror topic has what is in force at the source, set on the
// topic itself: though it be a default there, no default of the destination may take its place. Excludes do not bind it, and
// it stays at STOPPED.
var held = []string{keyCleanupPolicy}

// neverCopied are settings about where a cluster keeps a log, not about the log.
var neverCopied = []string{
	"remote.storage.enable", "local.retention.ms", "local.retention.bytes", "remote.copy.disable",
	"remote.log.copy.disable", "remote.log.delete.on.disable", "message.format.version", "message.downconversion.enable",
}

// Missing names a setting that a mirror topic must have and this one does not; empty: it has them all. Harmful: records
// would be stored with another time than they come with. Without the others a topic can be mirrored, if its cluster does
// not admit them: what that costs is told when it happens.
func Missing(cs kafka.Configs) (setting string, harmful bool) {
	for _, key := range slices.Sorted(maps.Keys(forced)) {
		e, known := cs.Entries[key]
		if !known || e.Value == forced[key] {
			continue
		}
		setting = key + "=" + e.Value
		if key == keyTimestampType {
			return setting, true
		}
	}
	return setting, false
}

// Cleans names the setting by which a copy would lose records that its source keeps; empty: it has none.
func Cleans(source, destination kafka.Configs) string {
	s, known := source.Entries[keyCleanupPolicy]
	d := destination.Entries[keyCleanupPolicy]
	if !known || compacts(s.Value) || !compacts(d.Value) {
		return ""
	}
	return keyCleanupPolicy + "=" + d.Value
}

func compacts(policy string) bool { return strings.Contains(policy, "compact") }

// topicSettings are the settings of one topic as a cluster described them.
type topicSettings struct {
	explicit        map[string]string // set on the topic itself
	held            map[string]string // in force, of the keys that are held
	maxMessageBytes int64             // in force; 0: unknown
}

// settingsInput is what the decision about one topic's settings looks at.
type settingsInput struct {
	source      topicSettings
	destination topicSettings // zero for a topic that is to be created
	replicas    int           // of the destination topic; 0: not known yet
	exclude     []string      // topic_properties_exclude
	known       map[string]bool
	trial       bool     // the destination topic may be somebody's own
	owned       []string // keys that mirrord has set
}

// settingsPlan brings a destination topic's settings to what they should be.
type settingsPlan struct {
	set      map[string]string
	remove   []string
	owned    []string          // afterwards
	source   map[string]string // the source's own values that may be copied; they return at STOPPED
	trial    mirror.TopicID    // of the destination topic, if it is on trial
	own      map[string]string // what that one had before
	left     []string          // of the source's, unknown to the destination
	replaced bool              // the timestamp limits, by their older equivalent
	lowered  bool              // min.insync.replicas, to as many as there are
}

func (p settingsPlan) changes() bool { return len(p.set) > 0 || len(p.remove) > 0 }

// copyable are the source's own settings that the operator and the destination admit, and those that are held.
func (in settingsInput) copyable() (values map[string]string, left []string) {
	values = map[string]string{}
	for key, value := range in.source.explicit {
		switch {
		case slices.Contains(in.exclude, key), slices.Contains(neverCopied, key):
		case !in.knows(key):
			left = append(left, key)
		default:
			values[key] = value
		}
	}
	for key, value := range in.source.held {
		if in.knows(key) {
			values[key] = value
		}
	}
	slices.Sort(left)
	return values, left
}

// lower keeps min.insync.replicas from asking for more replicas than the destination topic has: older brokers would take
// no record then. Where that is not known yet, the setting waits.
func (in settingsInput) lower(values map[string]string) bool {
	n, err := strconv.Atoi(values[keyMinInsync])
	switch {
	case err != nil || in.replicas > 0 && n <= in.replicas:
		return false
	case in.replicas == 0:
		delete(values, keyMinInsync)
		return false
	}
	values[keyMinInsync] = strconv.Itoa(in.replicas)
	return true
}

// knows reports whether the destination has such a setting. When it could not be asked, everything passes.
func (in settingsInput) knows(key string) bool { return len(in.known) == 0 || in.known[key] }

// planSettings decides about a topic that is being mirrored.
func planSettings(in settingsInput) settingsPlan {
	p := settingsPlan{set: map[string]string{}}
	p.source, p.left = in.copyable()
	p.lowered = in.lower(p.source)
	want := maps.Clone(p.source)
	p.replaced = in.force(want)
	_, copied := want[keyMaxMessageBytes]
	raised := !copied && slices.Contains(in.owned, keyMaxMessageBytes) // what is in force is our own doing
	if least := in.source.maxMessageBytes; least > in.admits(want) || raised && least > 0 {
		want[keyMaxMessageBytes] = strconv.FormatInt(least, 10)
	}
	if in.trial {
		want = in.sparing(want)
	}
	p.diff(in, want)
	return p
}

// force puts the mirror's own settings over those of the source.
func (in settingsInput) force(want map[string]string) (replaced bool) {
	for key, value := range forced {
		if in.knows(key) {
			want[key] = value
		}
	}
	if !in.knows(keyTimestampBefore) || !in.knows(keyTimestampAfter) {
		want[keyTimestampDifference], replaced = maxInt64, true
	}
	return replaced
}

// admits is the largest batch that the destination topic would take with these settings.
func (in settingsInput) admits(want map[string]string) int64 {
	value, ok := want[keyMaxMessageBytes]
	if !ok {
		return in.destination.maxMessageBytes
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return in.destination.maxMessageBytes
	}
	return n
}

// diff fills set, remove and owned. A key that mirrord has set and that is not wanted any more goes; one that somebody
// else has set stays; one that the operator has excluded since is left as it is and not ours any more.
func (p *settingsPlan) diff(in settingsInput, want map[string]string) {
	for key, value := range want {
		if now, ok := in.destination.explicit[key]; !ok || now != value {
			p.set[key] = value
		}
	}
	p.owned = slices.Sorted(maps.Keys(want))
	for _, key := range in.owned {
		_, wanted := want[key]
		_, there := in.destination.explicit[key]
		if there && !wanted && !slices.Contains(in.exclude, key) {
			p.remove = append(p.remove, key)
		}
	}
	slices.Sort(p.remove)
}

// planReturn decides about a topic that was promoted: what mirrord has set gives way to the source's own values as last
// seen, everything else stays as it is.
func planReturn(owned []string, source, destination map[string]string) (set map[string]string, remove []string) {
	set = map[string]string{}
	for _, key := range owned {
		value, has := source[key]
		now, there := destination[key]
		switch {
		case has && (!there || now != value):
			set[key] = value
		case !has && there:
			remove = append(remove, key)
		}
	}
	slices.Sort(remove)
	return set, remove
}

// sameTopic reports whether two ids mean one topic.
func sameTopic(a, b mirror.TopicID) bool { return a == b && !a.IsZero() }
