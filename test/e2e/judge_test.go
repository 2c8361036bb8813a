package e2e

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// In a log that is cleaned on each side by itself, one side may lack what is superseded, and tombstones; nothing else.
func TestWhatCleanersMayLeaveOut(t *testing.T) {
	value, tombstone := []byte("v"), []byte(nil)
	type lone struct {
		atSource bool
		value    []byte
	}
	for name, c := range map[string]struct {
		records []lone // of one key, in offset order
		both    bool   // a last record that both have
		fine    bool
	}{
		"a value":                               {records: []lone{{true, value}}},
		"a value that both supersede":           {records: []lone{{true, value}}, both: true, fine: true},
		"a tombstone":                           {records: []lone{{true, tombstone}}, fine: true},
		"a value and its tombstone":             {records: []lone{{true, value}, {true, tombstone}}, fine: true},
		"a value, the tombstone only elsewhere": {records: []lone{{true, value}, {false, tombstone}}},
		"a value after a tombstone":             {records: []lone{{true, tombstone}, {false, value}}},
		"two values, each superseding":          {records: []lone{{true, value}, {false, value}}},
	} {
		m := merge{owed: map[string]debt{}}
		for i, r := range c.records {
			rec := &kgo.Record{Offset: int64(i), Key: []byte("k"), Value: r.value}
			a, b := rec, (*kgo.Record)(nil)
			if !r.atSource {
				a, b = b, a
			}
			if diff := m.judge(View{Cleaned: true}, a, b); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		if c.both {
			rec := &kgo.Record{Offset: 9, Key: []byte("k"), Value: value}
			m.judge(View{Cleaned: true}, rec, rec)
		}
		if fine := len(m.owed) == 0; fine != c.fine {
			t.Errorf("%s: accepted %v, want %v", name, fine, c.fine)
		}
	}
}
