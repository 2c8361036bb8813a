//go:generate go test . -run TestCommandsAreDocumented -update
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var update = flag.Bool("update", false, "write docs/commands.md anew")

// TestCommandsAreDocumented: docs/commands.md is what the commands say about themselves.
func TestCommandsAreDocumented(t *testing.T) {
	const file = "../../docs/commands.md"
	var doc strings.Builder
	root := rootCommand()
	fmt.Fprintf(&doc, "# Commands\n\n<!-- made by `go test ./cmd/mirrord -update` from the commands' own help -->\n\n%s\n", root.Long)
	for _, c := range root.Commands() {
		document(&doc, c)
	}
	if *update {
		if err := os.WriteFile(file, []byte(doc.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil || string(got) != doc.String() {
		t.Errorf("docs/commands.md differs from the commands' help (%v); run go test ./cmd/mirrord -update", err)
	}
}

func document(doc *strings.Builder, c *cobra.Command) {
	if c.Name() == "help" || c.Hidden {
		return
	}
	if c.HasSubCommands() {
		for _, sub := range c.Commands() {
			document(doc, sub)
		}
		return
	}
	about := c.Long
	if about == "" {
		about = c.Short + "."
	}
	path := strings.TrimSuffix(c.CommandPath(), " "+c.Name())
	fmt.Fprintf(doc, "\n## %s\n\n    %s %s\n\n%s\n", c.CommandPath(), path, c.Use, about)
	if flags := c.NonInheritedFlags().FlagUsages(); flags != "" {
		fmt.Fprintf(doc, "\n```\n%s```\n", flags)
	}
}
