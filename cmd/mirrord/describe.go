package main

import (
	"github.com/spf13/cobra"

	"mirrord/internal/config"
	"mirrord/internal/control"
	"mirrord/internal/daemon"
	"mirrord/internal/mmm"
)

// look runs a command that only looks.
func (c *connection) look(cmd *cobra.Command, asJSON bool, f func(*control.Operator) error) error {
	op, err := c.open(cmd)
	if err != nil {
		return err
	}
	defer op.Destination.Close()
	op.JSON = asJSON
	return f(op)
}

func describeCommand() *cobra.Command {
	var c connection
	var opts control.DescribeOptions
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "describe [--mirror NAME] [--failed] [--groups] [--json]",
		Short: "Show partitions, or group offsets, with states and lag",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.look(cmd, asJSON, func(o *control.Operator) error { return o.Describe(cmd.Context(), opts) })
		},
	}
	c.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&opts.Mirror, "mirror", "", "only this mirror")
	f.BoolVar(&opts.Failed, "failed", false, "only what has failed")
	f.BoolVar(&opts.Groups, "groups", false, "offsets of consumer groups instead of partitions")
	f.BoolVar(&asJSON, "json", false, "print a JSON array")
	return cmd
}

func planCommand() *cobra.Command {
	var c connection
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan --mirror NAME [--json]",
		Short: "Show what the next refresh would change, and what a stop now would lose",
		Long: `Show what the next refresh of a mirror would change on the destination, and what a stop now would lose: records, seconds, open
transactions, group offsets. Nothing is changed. Reads the source too, with the secrets of this host (see --config); without it
the losses are those that the owners last reported, and the exit code is 4.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need(cmd, "mirror"); err != nil {
				return err
			}
			return c.look(cmd, asJSON, func(o *control.Operator) error {
				return o.Plan(cmd.Context(), name, mmm.DefaultConfig(), c.source)
			})
		},
	}
	c.flags(cmd)
	cmd.Flags().StringVar(&name, "mirror", "", "name of the mirror")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func verifyCommand() *cobra.Command {
	var c connection
	var opts control.VerifyOptions
	var topics string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify --mirror NAME [--topics LIST] [--full] [--json]",
		Short: "Compare both sides record by record",
		Long: `Compare both sides record by record over the range that both hold: offset, timestamp, key, value and headers. Without --full
the ends of each log and a sample are read. Reads the source too, with the secrets of this host (see --config), within the
memory_limit of that file. Exit code 1: there is a difference.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need(cmd, "mirror"); err != nil {
				return err
			}
			opts.Topics = config.SplitList(topics)
			cfg, _, err := c.resolve()
			if err != nil {
				return err
			}
			if cfg != nil {
				opts.MemoryLimit = cfg.MemoryLimit
				daemon.BoundMemory(cfg.MemoryLimit)
			}
			return c.look(cmd, asJSON, func(o *control.Operator) error { return o.Verify(cmd.Context(), opts, c.source) })
		},
	}
	c.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&opts.Mirror, "mirror", "", "name of the mirror")
	f.StringVar(&topics, "topics", "", "only these topics: names or RE2 expressions, comma-separated")
	f.BoolVar(&opts.Full, "full", false, "read the whole logs")
	f.BoolVar(&asJSON, "json", false, "print a JSON array")
	return cmd
}

func stateCommand() *cobra.Command {
	var c connection
	var asJSON bool
	state := &cobra.Command{
		Use:   "state",
		Short: "Look into __mirror_state",
		RunE:  func(*cobra.Command, []string) error { return usage("mirrord state needs a subcommand: dump") },
	}
	dump := &cobra.Command{
		Use:   "dump [--json]",
		Short: "Decode __mirror_state",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.look(cmd, asJSON, func(o *control.Operator) error { return o.Dump(cmd.Context()) })
		},
	}
	c.flags(dump)
	dump.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	state.AddCommand(dump)
	return state
}
