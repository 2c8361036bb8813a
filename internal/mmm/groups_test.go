package mmm

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

var tp0 = kafka.TopicPartition{Topic: "t"}

func seenAt(kind string, offset int64) groupSeen {
	return groupSeen{kind: kind, offsets: map[kafka.TopicPartition]position{tp0: {offset: offset}}}
}

func rowAt(source, destination int64, status string, committed time.Time) []statestore.GroupRow {
	return []statestore.GroupRow{{Topic: "t", SourceOffset: source, DestinationOffset: destination, Status: status, CommittedAtMillis: committed.UnixMilli()}}
}

func TestPlanGroup(t *testing.T) {
	now := time.UnixMilli(1_000_000_000)
	busy := seenAt("classic", 10)
	busy.active = true
	for _, tt := range []struct {
		name   string
		c      groupCase
		commit int64 // −1: nothing is committed
		remove bool
		status string // empty: no row
		reason string
	}{
		{"first", groupCase{source: seenAt("classic", 50)}, 50, false, StatusSynced, ""},
		{"level", groupCase{source: seenAt("classic", 50), destination: seenAt("classic", 50), rows: rowAt(50, 50, StatusSynced, now)}, -1, false, StatusSynced, ""},
		{"clamped", groupCase{source: seenAt("classic", 900)}, 100, false, StatusClamped, "100"},
		{"level for long: before it expires", groupCase{
			source: seenAt("classic", 50), destination: seenAt("classic", 50),
			rows: rowAt(50, 50, StatusSynced, now.Add(-2*time.Hour)), recommit: time.Hour,
		}, 50, false, StatusSynced, ""},
		{"active", groupCase{source: seenAt("classic", 50), destination: busy}, -1, false, StatusSkipped, reasonActive},
		{"active and level", groupCase{source: seenAt("classic", 10), destination: busy}, -1, false, StatusSynced, ""},
		{
			"gone on here",
			groupCase{source: seenAt("classic", 50), destination: seenAt("classic", 80), rows: rowAt(50, 50, StatusSynced, now)},
			-1, false, StatusSkipped, reasonAhead,
		},
		{
			"deleted at the source",
			groupCase{destination: seenAt("classic", 50), rows: rowAt(50, 50, StatusSynced, now), vouched: map[string]bool{"t": true}},
			-1, true, "", "",
		},
		{
			"deleted at the source while active",
			groupCase{destination: busy, rows: rowAt(10, 10, StatusSynced, now), vouched: map[string]bool{"t": true}},
			-1, false, StatusSkipped, reasonActive,
		},
		{"not seen at the source", groupCase{destination: seenAt("classic", 50), rows: rowAt(50, 50, StatusSynced, now)}, -1, false, StatusSynced, ""},
		{
			"source not readable",
			groupCase{source: groupSeen{err: mirror.Errorf(mirror.Retriable, "loading")}, rows: rowAt(50, 50, StatusSynced, now)},
			-1, false, StatusFailed, "loading",
		},
		{"another kind of group here", groupCase{source: seenAt("share", 50), destination: seenAt("classic", 1)}, -1, false, StatusFailed, "classic"},
		{"excluded since", groupCase{source: groupSeen{kind: "classic"}, excluded: true, rows: rowAt(50, 50, StatusSynced, now)}, -1, false, StatusSkipped, reasonExcluded},
		{"paused or promoted", groupCase{
			source: seenAt("classic", 90), destination: seenAt("classic", 50), rows: rowAt(50, 50, StatusSynced, now),
			mode: func(string, int32) syncMode { return syncNot },
		}, -1, false, StatusSynced, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := tt.c
			c.name, c.now, c.bounds = "g", now, map[kafka.TopicPartition]bounds{tp0: {end: 100}}
			if c.mode == nil {
				c.mode = func(string, int32) syncMode { return syncOn }
			}
			p := c.plan()
			got := int64(-1)
			if at, ok := p.commit[tp0]; ok {
				got = at.offset
			}
			status, reason := worst(p.rows)
			if got != tt.commit || slices.Contains(p.remove, tp0) != tt.remove || status != tt.status || !strings.Contains(reason, tt.reason) {
				t.Errorf("planned %+v", p)
			}
			if p.idle() && status == StatusSynced && c.rows != nil && !reflect.DeepEqual(p.rows, c.rows) {
				t.Errorf("rows %+v of a level group became %+v", c.rows, p.rows)
			}
		})
	}
}

// A refusal leaves the row saying what mirrord committed before.
func TestARefusedCommitIsTakenBack(t *testing.T) {
	now := time.UnixMilli(1_000_000_000)
	c := groupCase{
		name: "g", source: seenAt("classic", 60), destination: seenAt("classic", 50), rows: rowAt(50, 50, StatusSynced, now.Add(-time.Minute)),
		mode: func(string, int32) syncMode { return syncOn }, bounds: map[kafka.TopicPartition]bounds{tp0: {end: 100}}, now: now,
	}
	for err, status := range map[error]string{kerr.UnknownMemberID: StatusSkipped, kerr.GroupAuthorizationFailed: StatusFailed} {
		p := c.plan()
		p.failed(map[kafka.TopicPartition]error{tp0: err}, c.rows)
		if r := p.rows[0]; r.Status != status || r.DestinationOffset != 50 || r.SourceOffset != 60 || r.CommittedAtMillis != c.rows[0].CommittedAtMillis {
			t.Errorf("%v: row %+v", err, r)
		}
	}
	c.source, c.vouched = groupSeen{}, map[string]bool{"t": true}
	p := c.plan()
	p.failed(map[kafka.TopicPartition]error{tp0: kerr.GroupAuthorizationFailed}, c.rows)
	if len(p.rows) != 1 || p.rows[0].DestinationOffset != 50 || p.rows[0].Status != StatusFailed {
		t.Errorf("after a refused deletion: %+v", p.rows)
	}
}

func TestTakenBy(t *testing.T) {
	for _, tt := range []struct {
		name       string
		own, other statestore.Topic
		taken      bool // from the asking mirror, whose name is "m"
	}{
		{"nobody has it", statestore.Topic{}, statestore.Topic{}, false},
		{"the other has it", statestore.Topic{}, statestore.Topic{Wish: mirror.Mirroring}, true},
		{"the other is done with it", statestore.Topic{}, statestore.Topic{Wish: mirror.Stopped, Promoted: true}, false},
		{"the other is not done yet", statestore.Topic{}, statestore.Topic{Wish: mirror.Stopped}, true},
		{"both at once: the first name", statestore.Topic{Wish: mirror.Mirroring}, statestore.Topic{Wish: mirror.Mirroring}, true},
		{"both, settled here", statestore.Topic{Wish: mirror.Mirroring, DestinationID: id('d')}, statestore.Topic{Wish: mirror.Mirroring}, false},
		{"both, settled there", statestore.Topic{Wish: mirror.Mirroring}, statestore.Topic{Wish: mirror.Mirroring, DestinationID: id('d')}, true},
	} {
		m := newMemory()
		add := func(name string, topic statestore.Topic) {
			m.mirrors[name] = statestore.Mirror{Definition: mirror.Definition{Name: name}}
			if topic.Wish != 0 {
				topic.Mirror, topic.Name = name, "t"
				m.topics[[2]string{name, "t"}] = topic
			}
		}
		add("m", tt.own)
		add("a", tt.other)
		if by, taken := takenBy(m, "m", "t"); taken != tt.taken || taken && by != "a" {
			t.Errorf("%s: taken %v by %q", tt.name, taken, by)
		}
	}
}
