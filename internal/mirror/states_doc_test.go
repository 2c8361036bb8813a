//go:generate go test . -run TestStatesAreDocumented -update

package mirror

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/states.md anew")

var stateMeanings = map[State]string{
	Unknown:       "no record yet: the topic is not created, or not looked at",
	LogTruncation: "finding where both logs agree",
	EpochFencing:  "the destination's leader epoch is being raised above the source's",
	Mirroring:     "being fetched",
	Pausing:       "draining",
	Paused:        "guarded, not fetched, settings and offsets not synced",
	Stopping:      "the promotion is running",
	Stopped:       "promoted: writable; the last mirrored position is kept",
	Failed:        "waiting for a retry or for the operator",
}

// statesDoc draws the table of state.go.
func statesDoc() string {
	var b strings.Builder
	b.WriteString("# States of a mirror partition\n\nGenerated from the code's own table by `make gen`. Entering the state that a partition is in is always legal: a new\nowner repeats the state's effect.\n\n")
	b.WriteString("| state | id | meaning | entered from |\n|---|---|---|---|\n")
	for _, s := range States() {
		var from []string
		for _, f := range EnterableFrom(s) {
			from = append(from, f.String())
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s |\n", s, s, stateMeanings[s], strings.Join(from, ", "))
	}
	b.WriteString("\n```mermaid\nstateDiagram-v2\n")
	for _, to := range States() {
		for _, from := range EnterableFrom(to) {
			fmt.Fprintf(&b, "    %s --> %s\n", from, to)
		}
	}
	b.WriteString("```\n\n## What an owner does next, by state and wish\n\nA wish wins over failure: stop and pause are honoured at once in FAILED, so failover works with the source dead.\n\n")
	b.WriteString("| state | wish MIRRORING | wish PAUSED | wish STOPPED |\n|---|---|---|---|\n")
	for _, s := range States() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", s, Plan(s, Mirroring), Plan(s, Paused), Plan(s, Stopped))
	}
	return b.String()
}

func TestStatesAreDocumented(t *testing.T) {
	const file = "../../docs/states.md"
	if *update {
		if err := os.WriteFile(file, []byte(statesDoc()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != statesDoc() {
		t.Error("docs/states.md is not what the table says: run `make gen`")
	}
	for _, s := range States() {
		if stateMeanings[s] == "" {
			t.Errorf("state %v has no meaning written down", s)
		}
	}
}
