package main

import (
	"time"

	"github.com/spf13/cobra"

	"mirrord/internal/config"
	"mirrord/internal/control"
	"mirrord/internal/mirror"
)

// operation is a command that an instance executes.
type operation struct {
	connection
	mirror, topics, exclude string
	timeout                 time.Duration
	noWait, dryRun          bool
}

func (o *operation) flags(cmd *cobra.Command, timeout time.Duration) {
	o.connection.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.mirror, "mirror", "", "name of the mirror")
	f.DurationVar(&o.timeout, "timeout", timeout, "how long to wait for the result")
	f.BoolVar(&o.noWait, "no-wait", false, "do not wait for the result")
}

// do submits the command and waits.
func (o *operation) do(cmd *cobra.Command, c mirror.Command) error {
	if o.timeout <= 0 {
		return usage("--timeout must be positive")
	}
	op, err := o.open(cmd)
	if err != nil {
		return err
	}
	defer op.Destination.Close()
	c.Mirror = o.mirror
	return op.Do(cmd.Context(), control.Request{Command: c, Timeout: o.timeout, NoWait: o.noWait, DryRun: o.dryRun, Source: o.source})
}

// topicCommand is a command on topics of a mirror.
func topicCommand(verb mirror.Verb, use, short, long string, more func(*cobra.Command, *operation, *mirror.Command)) *cobra.Command {
	var o operation
	c := mirror.Command{Verb: verb}
	cmd := &cobra.Command{
		Use: string(verb) + " --mirror NAME --topics LIST" + use, Short: short, Long: long,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need(cmd, "mirror", "topics"); err != nil {
				return err
			}
			c.Topics, c.Exclude = config.SplitList(o.topics), config.SplitList(o.exclude)
			if len(c.Topics) == 0 {
				return usage("--topics names no topic")
			}
			for _, items := range [][]string{c.Topics, c.Exclude} {
				if err := config.CheckPatterns(items); err != nil {
					return &usageError{err}
				}
			}
			return o.do(cmd, c)
		},
	}
	o.flags(cmd, 5*time.Minute)
	cmd.Flags().StringVar(&o.topics, "topics", "", "comma-separated topic names, or RE2 expressions that match whole names")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "say what would happen and change nothing")
	if more != nil {
		more(cmd, &o, &c)
	}
	return cmd
}

func startCommand() *cobra.Command {
	return topicCommand(mirror.VerbStart, " [--exclude LIST]", "Begin to mirror topics",
		`Begin to mirror topics of the source. Patterns that match no topic yet are kept for topics to come. Starting a FAILED topic
recovers it; starting a STOPPED one is a failback: what both sides share is not copied again. Its dry run asks the source, with
the secrets of this host (see --config), and says so where it cannot.`,
		func(cmd *cobra.Command, o *operation, _ *mirror.Command) {
			cmd.Flags().StringVar(&o.exclude, "exclude", "", "topics to leave out, in the same form")
		})
}

func stopCommand() *cobra.Command {
	return topicCommand(mirror.VerbStop, " [--drain]", "Promote topics (failover)",
		`Promote topics: end mirroring and make them writable. Works without the source, in any state. With --drain it is a planned
switch-over: it waits for zero lag, and promotes nothing that does not reach it within --timeout.`,
		func(cmd *cobra.Command, _ *operation, c *mirror.Command) {
			cmd.Flags().BoolVar(&c.Drain, "drain", false, "wait for zero lag first")
		})
}

func pauseCommand() *cobra.Command {
	return topicCommand(mirror.VerbPause, "", "Pause mirroring", "Pause mirroring of topics. They stay guarded; their settings and group offsets are left alone.", nil)
}

func resumeCommand() *cobra.Command {
	return topicCommand(mirror.VerbResume, "", "Go on after a pause", "", nil)
}

func recoverCommand() *cobra.Command {
	return topicCommand(mirror.VerbRecover, " [--reseed]", "Try FAILED partitions again",
		`Try FAILED partitions again. --reseed consents to delete a destination topic that holds other records than the source and to
copy it anew; what only the destination has is exported to a file on the host of the mirror's owner first.`,
		func(cmd *cobra.Command, _ *operation, c *mirror.Command) {
			cmd.Flags().BoolVar(&c.Reseed, "reseed", false, "recreate the destination topic, after exporting what only it has")
		})
}
