package e2e

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a child that cannot outlive the tests, its output appended to a file.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed by the goroutine that waits for the child
}

var forks = make(chan func())

// The kernel delivers the parent-death signal when the forking *thread* ends, so one locked thread forks all children.
func init() {
	go func() {
		runtime.LockOSThread()
		for fork := range forks {
			fork()
		}
	}()
}

func startProcess(cmd *exec.Cmd, logFile string) (*process, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	forks <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill ends the child at once, also when it is frozen.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// wait reports whether the child has ended within the limit.
func (p *process) wait(limit time.Duration) bool {
	select {
	case <-p.done:
		return true
	case <-time.After(limit):
		return false
	}
}

// code is the exit code of an ended child; −1: ended by a signal.
func (p *process) code() int { return p.cmd.ProcessState.ExitCode() }
