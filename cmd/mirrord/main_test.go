package main

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kfake"

	"mirrord/internal/statestore"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"mirrord": main})
}

// TestScripts runs testdata/*.txtar, each against a fake destination of its own. In the scripts:
//
//	exits N mirrord ...       runs mirrord and demands its exit code
//	instance                  an instance of mirrord owns all shards, and executes nothing
//	instance executes         the same, but commands on topics are executed at once
//	mirror NAME               there is a mirror
//	group MIRROR TOPIC "NAME" a group is synced at offset 5 of the topic's partition 0
//	topic MIRROR NAME N STATE there is a topic with N partitions in a state; the destination holds 10 records of each
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			fake, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.DataDir(env.WorkDir+"/kafka"))
			if err != nil {
				return err
			}
			env.Defer(fake.Close)
			env.Setenv("DEST", fake.ListenAddrs()[0])
			silent, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
			if err != nil {
				return err
			}
			env.Defer(func() { silent.Close() })
			env.Setenv("SILENT", silent.Addr().String())
			env.Values[instanceKey{}] = &instance{addrs: fake.ListenAddrs(), reports: map[int32]statestore.ShardReport{}}
			env.Defer(env.Values[instanceKey{}].(*instance).stop)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    exits,
			"instance": func(ts *testscript.TestScript, _ bool, args []string) { instanceOf(ts).start(ts, len(args) > 0) },
			"mirror":   func(ts *testscript.TestScript, _ bool, args []string) { instanceOf(ts).mirror(ts, args[0]) },
			"group":    func(ts *testscript.TestScript, _ bool, args []string) { instanceOf(ts).group(ts, args) },
			"topic":    func(ts *testscript.TestScript, _ bool, args []string) { instanceOf(ts).topic(ts, args) },
		},
	})
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func TestMainIsShort(t *testing.T) {
	b, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, c := range b {
		if c == '\n' {
			lines++
		}
	}
	if lines > 80 {
		t.Errorf("main.go has %d lines, at most 80 are wanted", lines)
	}
}
