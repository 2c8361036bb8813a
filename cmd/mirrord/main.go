// Command mirrord keeps topics of a destination Kafka cluster identical to those of a source cluster, and is the tool to
// operate that.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"mirrord/internal/config"
	"mirrord/internal/control"
	"mirrord/internal/daemon"
)

func main() { os.Exit(mirrord(os.Args[1:])) }

// mirrord runs one command line and returns the exit code.
func mirrord(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, err)
	}
	return exitCode(err)
}

// exitCode follows from the error's type. What no type speaks for is a wrong command line.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if f, ok := errors.AsType[*control.Failure](err); ok {
		return f.Code
	}
	if _, ok := errors.AsType[*config.Mistakes](err); ok {
		return control.ExitUsage
	}
	if _, ok := errors.AsType[*daemon.CheckError](err); ok {
		return control.ExitFailed
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return control.ExitUsage
	}
	return control.ExitFailed
}
