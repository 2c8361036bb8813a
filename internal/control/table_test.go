package control

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"mirrord/internal/compare"
)

// TestTablesShowWhatATerminalWouldObey: groups, principals and client ids may be made of anything.
func TestTablesShowWhatATerminalWouldObey(t *testing.T) {
	const evil = "a\x1b[2Jb\nc\td\u202e\u009b"
	var out, errs bytes.Buffer
	o := Operator{Out: &out, Err: &errs}
	tb := o.table("GROUP", "REASON")
	tb.row(evil, "größe ok")
	tb.flush()
	if want := "GROUP                          REASON\n" + `"a\x1b[2Jb\nc\td\u202e\u009b"  größe ok` + "\n"; out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	o.tell("group %s: line one\nline two \xff", evil)
	o.say("%s", evil)
	for _, text := range []string{errs.String(), out.String(), failure(ExitFailed, "%s", evil).Error()} {
		if strings.ContainsAny(text, "\x1b\t\u202e\u009b") || !strings.Contains(text, `\x1b[2Jb`) {
			t.Errorf("a terminal would obey %q", text)
		}
	}
	if !strings.Contains(errs.String(), "line one\nline two \ufffd\n") {
		t.Errorf("lines are not kept: %q", errs.String())
	}
}

// TestLongNamesAreCutOnATerminalOnly: what reads the output needs whole names, a person needs columns.
func TestLongNamesAreCutOnATerminalOnly(t *testing.T) {
	name := strings.Repeat("a", 124) + strings.Repeat("b", 125)
	message := strings.Repeat("m", 300)
	for _, terminal := range []bool{false, true} {
		var out bytes.Buffer
		o := Operator{Out: &out, OutTerminal: terminal}
		tb := o.table()
		tb.row(name, message)
		tb.flush()
		want := name + "  " + message + "\n"
		if terminal {
			want = strings.Repeat("a", 24) + "…" + strings.Repeat("b", 23) + "  " + message + "\n"
		}
		if out.String() != want {
			t.Errorf("terminal %v: got\n%s", terminal, out.String())
		}
	}
	var out bytes.Buffer
	o := Operator{Out: &out, OutTerminal: true, JSON: true}
	if err := o.showVerified([]compare.Row{{Topic: name, Equal: true}}); err != nil || !json.Valid(out.Bytes()) || !strings.Contains(out.String(), name) {
		t.Errorf("%v: %s", err, out.String())
	}
}

// TestADifferenceNamesItsPartitionOnlyIfItHasOne: a topic that one side lacks has none.
func TestADifferenceNamesItsPartitionOnlyIfItHasOne(t *testing.T) {
	var out bytes.Buffer
	o := Operator{Out: &out}
	err := o.showVerified([]compare.Row{{Topic: "a.b", Partition: -1, Detail: "is not there"}, {Topic: "c", Partition: 2, FirstDifference: 7}})
	if want := "a.b: is not there\nc-2: differs from offset 7 on"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
