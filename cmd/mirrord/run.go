package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mirrord/internal/config"
	"mirrord/internal/control"
	"mirrord/internal/daemon"
	"mirrord/internal/demo"
)

func runCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "run --config FILE",
		Short: "Run the daemon",
		Long: `Run the daemon until SIGTERM or SIGINT. SIGHUP reads the file again. A cluster that cannot be reached, or a mirror that
does not work, never ends it; only a bad file does (exit code 2).`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := configured(cmd, &file); err != nil {
				return err
			}
			return daemon.Run(cmd.Context(), file)
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (default $MIRRORD_CONFIG)")
	return cmd
}

// configured takes the configuration file from the environment where no flag names it.
func configured(cmd *cobra.Command, file *string) error {
	if *file == "" {
		*file = os.Getenv(config.ConfigVariable)
	}
	if *file == "" {
		return usage(cmd.CommandPath() + " needs --config or MIRRORD_CONFIG")
	}
	return nil
}

func checkCommand() *cobra.Command {
	var file string
	var offline bool
	cmd := &cobra.Command{
		Use:   "check --config FILE [--offline]",
		Short: "Check a configuration file, then both clusters",
		Long: `Check a configuration file, all mistakes at once, then connect and report rights, settings and limits of all clusters,
each with the exact fix. Nothing is changed. Exit code 2: the file has mistakes; 1: something else is wrong; 4: nothing but that a
cluster cannot be reached.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := configured(cmd, &file); err != nil {
				return err
			}
			return daemon.Check(cmd.Context(), file, offline, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&file, "config", "", "configuration file (default $MIRRORD_CONFIG)")
	cmd.Flags().BoolVar(&offline, "offline", false, "do not connect")
	return cmd
}

func demoCommand() *cobra.Command {
	o := demo.Options{}
	cmd := &cobra.Command{
		Use:   "demo [--http ADDR] [--for DURATION]",
		Short: "Show it all on two embedded clusters; no Kafka needed",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.For <= 0 {
				return usage("--for must be positive")
			}
			if o.HTTP != "" {
				var err error
				if o.HTTP, err = consoleAddress(o.HTTP); err != nil {
					return err
				}
			}
			o.Out = os.Stdout // handed on to the processes of the story
			return demo.Run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.HTTP, "http", "", "address of the console, on this host only, which then stays up after the story; :PORT means localhost")
	cmd.Flags().DurationVar(&o.For, "for", demo.DefaultFor, "how long the producers write")
	return cmd
}

// consoleAddress is where the console of the demo can be had: what is wrong with the address is told before the story
// begins, and port 0 becomes a free one.
func consoleAddress(address string) (string, error) {
	if strings.HasPrefix(address, ":") {
		address = "localhost" + address
	}
	if !(config.HTTP{Listen: address}).Loopback() {
		return "", usage("--http " + strconv.Quote(address) + " is not localhost:PORT or an address of this host only, like 127.0.0.1:9464")
	}
	listener, err := net.Listen("tcp", address)
	if cause, ok := errors.AsType[*os.SyscallError](err); ok {
		return "", &control.Failure{Code: control.ExitFailed, Lines: []string{"--http " + address + ": " + cause.Err.Error()}}
	}
	if err != nil {
		return "", &usageError{fmt.Errorf("--http: %w", err)}
	}
	return listener.Addr().String(), listener.Close()
}

func versionCommand() *cobra.Command {
	var c connection
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "mirrord", daemon.Version())
			return err
		},
	}
	c.flags(cmd)
	for _, name := range []string{"bootstrap-server", "command-config", "config"} {
		cmd.Flags().Lookup(name).Hidden = true // accepted as everywhere, and not needed
	}
	return cmd
}
