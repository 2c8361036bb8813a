package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mirrord/internal/config"
	"mirrord/internal/control"
	"mirrord/internal/mirror"
)

func createCommand() *cobra.Command {
	return defineCommand(mirror.VerbCreate, "Define a mirror",
		`Define a mirror. The file holds Kafka properties: bootstrap.servers, security.protocol, sasl.*, ssl.* (PEM), source.cluster.id,
and mirror keys such as topics.include. Secrets must be references, ${file:/PATH}, ${file:/PATH:KEY} or ${env:NAME}, which are
resolved on the daemon's host.`)
}

func alterCommand() *cobra.Command {
	return defineCommand(mirror.VerbAlter, "Change the settings of a mirror",
		`Change the settings of a mirror that the file names; all others stay. Settings of security.protocol, sasl.* and ssl.* are
taken together: one of them given, those that are not given go back to their defaults.`)
}

func defineCommand(verb mirror.Verb, short, long string) *cobra.Command {
	var o operation
	var file string
	cmd := &cobra.Command{
		Use: string(verb) + " --mirror NAME --mirror-config FILE", Short: short, Long: long,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need(cmd, "mirror", "mirror-config"); err != nil {
				return err
			}
			if err := mirror.ValidateName(o.mirror); err != nil {
				return &usageError{err}
			}
			settings, err := mirrorSettings(verb, o.mirror, file)
			if err != nil {
				return err
			}
			return o.do(cmd, mirror.Command{Verb: verb, Settings: settings})
		},
	}
	o.flags(cmd, 5*time.Minute)
	cmd.Flags().StringVar(&file, "mirror-config", "", "properties of the mirror")
	return cmd
}

// mirrorSettings reads a mirror-config and checks what can be checked here.
func mirrorSettings(verb mirror.Verb, name, file string) (map[string]string, error) {
	settings, err := config.LoadProperties(file)
	if err != nil {
		return nil, &usageError{err}
	}
	base := mirror.DefaultDefinition(name)
	if verb == mirror.VerbAlter && settings["bootstrap.servers"] == "" {
		base.Source.BootstrapServers = []string{"kept:1"} // stands for what the mirror has
	}
	if _, err := config.ApplyProperties(base, settings, nil); err != nil {
		lines := strings.Split(err.Error(), "\n")
		for i := range lines {
			lines[i] = fmt.Sprintf("%s: %s", file, lines[i])
		}
		return nil, &control.Failure{Code: control.ExitUsage, Lines: lines}
	}
	return settings, nil
}

func deleteCommand() *cobra.Command {
	var o operation
	cmd := &cobra.Command{
		Use:   "delete --mirror NAME",
		Short: "Forget a mirror whose topics are all STOPPED",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need(cmd, "mirror"); err != nil {
				return err
			}
			return o.do(cmd, mirror.Command{Verb: mirror.VerbDelete})
		},
	}
	o.flags(cmd, 5*time.Minute)
	return cmd
}

func listCommand() *cobra.Command {
	var c connection
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list [--json]",
		Short: "List mirrors",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.look(cmd, asJSON, func(o *control.Operator) error { return o.List(cmd.Context()) })
		},
	}
	c.flags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return cmd
}
