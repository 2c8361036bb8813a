package statestore

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"mirrord/internal/mirror"
)

var testID = mirror.TopicID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// samples hold every field of every type at a value that is not its zero.
func samples() []Record {
	p := mirror.Partition{Mirror: "east", TopicID: testID, Index: 3}
	d := mirror.DefaultDefinition("east")
	d.Source = mirror.Connection{BootstrapServers: []string{"a:1", "b:2"}, Security: mirror.Security{
		Protocol: "SASL_SSL",
		SASL: mirror.SASL{
			Mechanism: "PLAIN", Username: "u", Password: "${env:P}", TokenEndpoint: "https://t", ClientID: "c",
			ClientSecret: "${file:/s}", Scope: "x",
		},
		TLS: mirror.TLS{CAFile: "/ca", CertFile: "/cert", KeyFile: "/key", ServerName: "n", SkipHostname: true},
	}}
	d.SourceClusterID, d.TopicsInclude, d.GroupsExclude = "id", []string{"a.*"}, []string{"g"}
	d.SupportUncleanLeaderElection, d.Throttle = true, 1<<40
	return []Record{
		LastMirrorEpoch{p, mirror.Position{LeaderEpoch: 4, Offset: 1 << 33}},
		LastMirrorEpoch{p, mirror.NoPosition},
		PartitionState{
			Partition: p, Topic: "orders", State: mirror.Failed, Previous: mirror.Mirroring, RetryAttempt: -1,
			ErrorMessage: "no", StateEpoch: 7, LeaderEpoch: 8, Rearmed: 9, Kind: mirror.Diverged, Compared: 1 << 40,
		},
		PartitionState{Partition: p, Topic: "orders", State: mirror.Mirroring, Previous: mirror.NotRecorded, LeaderEpoch: -1},
		Mirror{
			Definition: d, LearntClusterID: "l", TransactionsMode: mirror.Exact, FillersMode: mirror.Markers,
			Declared: true, PendingInclude: []string{"x.*"}, PendingExclude: []string{"y"},
			Finding: Finding{mirror.SourceChanged, "other cluster"}, Version: 5,
		},
		Topic{
			Mirror: "east", Name: "orders", SourceID: testID, DestinationID: mirror.TopicID{9}, Partitions: 12,
			Wish: mirror.Paused, ByCommand: true, Promoted: true, Rearm: 3, Message: "m", Finding: Finding{mirror.SourceGone, "gone"},
			Slot: 3, Drain: true, DrainDeadlineMillis: 99, DrainCommand: testID, Recreating: true,
		},
		ShardClaim{3, 4, "host-1", "mirrord-host-1", "127.0.0.1:9464", 5, true},
		CommandOutcome{mirror.Outcome{
			ID: testID, Verb: mirror.VerbStop, Mirror: "east", AtMillis: 6, Message: "m", Refused: true,
			Topics: []mirror.TopicOutcome{{Topic: "t", Refused: true, Message: "why"}}, Requester: "u",
		}},
		CommandCursor{3, 17},
		ShardReport{3, "host-1", 8, []ReportedPosition{
			{p, 10, 9, 1500},
			{mirror.Partition{Mirror: "east", TopicID: testID, Index: 4}, -1, -1, 0},
			{mirror.Partition{Mirror: "west", TopicID: testID, Index: 0}, 1 << 40, 5, 7},
		}},
		OwnedACL{"east", "TOPIC;orders;READ;ALLOW;User:x;*"},
		GroupStatus{"east", "g", "classic", []GroupRow{{"t", 1, 5, 4, "md", "clamped", "why", 77}}},
		TopicSettings{Mirror: "east", Topic: "orders", Owned: []string{"cleanup.policy"}, Source: map[string]string{"a": "1", "b": ""}, Compacted: true},
		TopicSettings{Mirror: "east", Topic: "orders", Untouched: true},
		TopicSettings{Mirror: "east", Topic: "orders", Source: map[string]string{"a": "1"}, Trial: testID, Own: map[string]string{"retention.ms": "-1"}},
		ClusterIdentity{"cluster", "mirrord"},
		RefreshStatus{"east", []RefreshFailure{{"acls", "refused", 2, 1700000000000}}, []string{"left alone"}},
		SourceEpochs{p, []mirror.Position{{LeaderEpoch: 0, Offset: 0}, {LeaderEpoch: 3, Offset: 100}}},
	}
}

func TestRecordsSurviveEncoding(t *testing.T) {
	for _, want := range samples() {
		got, err := DecodeRecord(want.key(), want.value())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%T: got %+v, %v, want %+v", want, got, err, want)
		}
		gone, err := DecodeRecord(want.key(), nil)
		tomb, ok := gone.(Tombstone)
		if err != nil || !ok || !bytes.Equal(tomb.key(), want.key()) || tomb.Shard(7) != want.Shard(7) {
			t.Errorf("%T: tombstone %+v, %v", want, gone, err)
		}
	}
}

// TestStoredFormat pins the bytes of KIP-1279's two types; every release must read and write them.
func TestStoredFormat(t *testing.T) {
	p := mirror.Partition{Mirror: "east", TopicID: testID, Index: 3}
	for _, tt := range []struct {
		record     Record
		key, value string
	}{
		{
			LastMirrorEpoch{p, mirror.Position{LeaderEpoch: 4, Offset: 10}},
			"0001" + "0004" + "65617374" + "0102030405060708090a0b0c0d0e0f10" + "00000003",
			"0000" + "00000004" + "01" + "00" + "08" + "000000000000000a",
		},
		{
			PartitionState{
				Partition: p, Topic: "t", State: mirror.Failed, Previous: mirror.NotRecorded, RetryAttempt: 2,
				ErrorMessage: "no", StateEpoch: 7, LeaderEpoch: -1, Kind: mirror.Diverged,
			},
			"0002" + "0004" + "65617374" + "0102030405060708090a0b0c0d0e0f10" + "00000003",
			"0000" + "0274" + "00000003" + "07" + "10" + "0002" + "04" + "00" + "03" + "036e6f" + "01" + "04" + "00000007" +
				"02" + "04" + "ffffffff" + "65" + "01" + "03",
		},
	} {
		if got := hex.EncodeToString(tt.record.key()); got != tt.key {
			t.Errorf("%T: key %s, want %s", tt.record, got, tt.key)
		}
		if got := hex.EncodeToString(tt.record.value()); got != tt.value {
			t.Errorf("%T: value %s, want %s", tt.record, got, tt.value)
		}
	}
}

func TestUnknownTagsAreSkipped(t *testing.T) {
	value, _ := hex.DecodeString("0000" + "00000004" + "02" + "00" + "08" + "000000000000000a" + "63" + "02" + "abcd")
	key := LastMirrorEpoch{Partition: mirror.Partition{Mirror: "east"}}.key()
	r, err := DecodeRecord(key, value)
	if got, ok := r.(LastMirrorEpoch); err != nil || !ok || got.Position != (mirror.Position{LeaderEpoch: 4, Offset: 10}) {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestUnreadableRecords(t *testing.T) {
	good := samples()[0]
	for name, tt := range map[string]struct{ key, value []byte }{
		"empty key":          {nil, []byte{}},
		"cut key":            {good.key()[:8], good.value()},
		"long key":           {append(good.key(), 0), good.value()},
		"empty value":        {good.key(), []byte{}},
		"cut value":          {good.key(), good.value()[:4]},
		"long value":         {good.key(), append(good.value(), 0)},
		"later version":      {good.key(), append([]byte{0, 1}, good.value()[2:]...)},
		"array beyond value": {GroupStatus{Mirror: "m", Group: "g"}.key(), []byte{0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f}},
		"other partition":    {samples()[2].key(), bytes.Replace(samples()[2].value(), []byte{0, 0, 0, 3, 7}, []byte{0, 0, 0, 4, 7}, 1)},
	} {
		r, err := DecodeRecord(tt.key, tt.value)
		if _, unknown := errors.AsType[*UnknownTypeError](err); err == nil || unknown {
			t.Errorf("%s: got %+v, %v", name, r, err)
		}
	}
	if _, err := DecodeRecord([]byte{3, 0}, nil); !errors.As(err, new(*UnknownTypeError)) {
		t.Errorf("unknown type: %v", err)
	}
}

func TestCommandsSurviveEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		want := mirror.Command{
			ID: [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")), AtMillis: rapid.Int64().Draw(t, "at"),
			Verb: mirror.Verb(text.Draw(t, "verb")), Mirror: text.Draw(t, "mirror"), Drain: rapid.Bool().Draw(t, "drain"),
			Reseed: rapid.Bool().Draw(t, "reseed"), TimeoutMillis: rapid.Int64().Draw(t, "timeout"),
		}
		if topics := rapid.SliceOf(text).Draw(t, "topics"); len(topics) > 0 {
			want.Topics = topics
		}
		if settings := rapid.MapOf(text, text).Draw(t, "settings"); len(settings) > 0 {
			want.Settings = settings
		}
		got, err := DecodeCommand(want.ID[:], EncodeCommand(want))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	})
}

// FuzzDecodeRecord: what can be read is read the same after it was written again.
func FuzzDecodeRecord(f *testing.F) {
	for _, r := range samples() {
		f.Add(r.key(), r.value())
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		r, err := DecodeRecord(key, value)
		if err != nil {
			return
		}
		again, err := DecodeRecord(r.key(), r.value())
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("read %+v, after writing it %+v, %v", r, again, err)
		}
	})
}

// FuzzDecodeCommand: the same for commands.
func FuzzDecodeCommand(f *testing.F) {
	cmd := mirror.Command{ID: testID, Verb: mirror.VerbStart, Mirror: "east", Topics: []string{"a"}, Settings: map[string]string{"k": "v"}}
	f.Add(cmd.ID[:], EncodeCommand(cmd))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		cmd, err := DecodeCommand(key, value)
		if err != nil {
			return
		}
		again, err := DecodeCommand(cmd.ID[:], EncodeCommand(cmd))
		if err != nil || !reflect.DeepEqual(again, cmd) {
			t.Fatalf("read %+v, after writing it %+v, %v", cmd, again, err)
		}
	})
}
