// Command mirrord keeps topics of a destination Kafka cluster identical to those of a source cluster, and is the tool to
// operate that.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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
	out := &results{Writer: os.Stdout}
	root.SetOut(out)
	err := cmp.Or(root.ExecuteContext(ctx), out.err)
	if err != nil && ctx.Err() != nil {
		err = interrupted(err)
	}
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, control.Visible(err.Error()))
	}
	return exitCode(err)
}

// interrupted is the error of a command that a signal ended, unless it tells what it has left undone.
func interrupted(err error) error {
	if f, ok := errors.AsType[*control.Failure](err); ok && f.Code == control.ExitUnfinished {
		return err
	}
	return &control.Failure{Code: control.ExitFailed, Lines: []string{"interrupted"}}
}

// results are what a command prints. A command whose results were lost has failed, whatever else it did.
type results struct {
	io.Writer
	err error
}

func (r *results) Write(p []byte) (int, error) {
	n, err := r.Writer.Write(p)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("write results: %w", err)
	}
	return n, err
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
	if c, ok := errors.AsType[*daemon.CheckError](err); ok && c.Count == c.Unreachable {
		return control.ExitUnreachable
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return control.ExitUsage
	}
	return control.ExitFailed
}
