package mmm

import (
	"strings"
	"testing"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

func TestJudgeCluster(t *testing.T) {
	for _, tt := range []struct {
		name               string
		learnt, configured string
		found              string
		kind               mirror.Kind
		says               []string
		after              string
	}{
		{name: "learnt", found: "A", after: "A"},
		{name: "the same", learnt: "A", found: "A", after: "A"},
		{name: "another one", learnt: "A", found: "B", kind: mirror.SourceChanged, says: []string{"A", "B"}, after: "A"},
		{name: "not the configured one", configured: "A", found: "B", kind: mirror.SourceChanged, says: []string{"A", "B"}},
		{name: "another one, accepted", learnt: "A", configured: "B", found: "B", after: "B"},
		{name: "the destination itself", found: "D", kind: mirror.Loop, says: []string{"D"}},
		{name: "the destination itself, though it was another", learnt: "A", found: "D", kind: mirror.Loop, says: []string{"D"}, after: "A"},
		{name: "a cluster without an id", learnt: "A", found: "", after: "A"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := statestore.Mirror{LearntClusterID: tt.learnt}
			m.SourceClusterID = tt.configured
			v := judgeCluster(m, tt.found, "D")
			if v.Finding.Kind != tt.kind || (v.Finding.Message != "") != (tt.kind != 0) || v.learnt != tt.after {
				t.Errorf("judged %+v", v)
			}
			for _, word := range tt.says {
				if !strings.Contains(v.Finding.Message, word) {
					t.Errorf("%q does not name %s", v.Finding.Message, word)
				}
			}
		})
	}
}

func TestDecideModes(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		transactions, fillers string // as defined
		decided               [2]string
		can                   capabilities
		want                  [2]string
	}{
		{"all allowed", "auto", "auto", [2]string{}, capabilities{markers: true, foreign: true}, [2]string{"exact", "markers"}},
		{"no markers", "auto", "auto", [2]string{}, capabilities{markers: false, foreign: true}, [2]string{"committed", "transactions"}},
		{"verification is on", "auto", "auto", [2]string{}, capabilities{markers: true, foreign: false}, [2]string{"committed", "markers"}},
		{"what is decided stays", "auto", "auto", [2]string{"committed", "markers"}, capabilities{markers: true, foreign: true}, [2]string{"committed", "markers"}},
		{"an edit wins", "exact", "markers", [2]string{"committed", "transactions"}, capabilities{}, [2]string{"exact", "markers"}},
		{"an edit takes away what exact needs", "auto", "transactions", [2]string{"exact", "markers"}, capabilities{}, [2]string{"committed", "transactions"}},
	} {
		m := statestore.Mirror{TransactionsMode: tt.decided[0], FillersMode: tt.decided[1]}
		m.Transactions, m.Fillers = tt.transactions, tt.fillers
		transactions, fillers := decideModes(m, tt.can)
		if got := [2]string{transactions, fillers}; got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestNameless(t *testing.T) {
	topics := catalog{"a": {}, "b": {}, "c": {id: id('c')}}
	nameless(topics, "A")
	if topics["a"].id == topics["b"].id || topics["a"].id.IsZero() || topics["c"].id != id('c') {
		t.Errorf("ids %v %v %v", topics["a"].id, topics["b"].id, topics["c"].id)
	}
	if got := namedID("A", "a").String(); got != "V4FWn3Aow--ciRJ4geX7ow" { // a stored format
		t.Errorf("id of a nameless topic: %s", got)
	}
}
