package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"mirrord/internal/daemon"
)

// rootCommand is the table of all commands.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "mirrord",
		Short: "Mirrors Kafka topics at identical offsets",
		Long: `mirrord keeps topics of a destination Kafka cluster identical to topics of a source cluster: the same records, in the
same partitions, at the same offsets.

Commands other than run, demo and check talk to the destination cluster only. It is given by --bootstrap-server, or by
--config or MIRRORD_CONFIG, whose destination is used.

Exit codes: 0 done, 1 refused or failed, 2 usage, 3 not finished in time, 4 cannot reach the cluster.`,
		SilenceErrors: true, SilenceUsage: true, Version: daemon.Version(),
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return usage("a command is missing; see mirrord --help") },
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n") // like mirrord version
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(runCommand(), demoCommand(), checkCommand(), versionCommand(),
		createCommand(), alterCommand(), deleteCommand(), listCommand(),
		startCommand(), stopCommand(), pauseCommand(), resumeCommand(), recoverCommand(),
		describeCommand(), planCommand(), verifyCommand(), stateCommand())
	eachCommand(root, func(c *cobra.Command) { c.Args = asUsage(c.Args) })
	return root
}

func eachCommand(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, sub := range c.Commands() {
		eachCommand(sub, f)
	}
}

// asUsage turns complaints about arguments into usage errors. No command takes any.
func asUsage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check == nil {
			check = cobra.NoArgs
		}
		if err := check(cmd, args); err != nil {
			return &usageError{err}
		}
		return nil
	}
}

// usageError is a command line that cannot be understood.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usage(text string) error { return &usageError{errors.New(text)} }

// need demands flags. An empty value counts as missing.
func need(cmd *cobra.Command, names ...string) error {
	var missing []string
	for _, name := range names {
		if f := cmd.Flags().Lookup(name); f.Value.String() == "" || f.Value.String() == "[]" {
			missing = append(missing, "--"+name)
		}
	}
	if len(missing) > 0 {
		return usage(cmd.CommandPath() + " needs " + strings.Join(missing, " and "))
	}
	return nil
}
