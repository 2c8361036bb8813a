package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestDaemonOutlivesItsLogPipe: whoever reads the log may go away (mirrord run 2>&1 | head -1). It is a signal that ends
// the daemon, in order, and nothing else.
func TestDaemonOutlivesItsLogPipe(t *testing.T) {
	dir := t.TempDir()
	file, notify := filepath.Join(dir, "mirrord.yaml"), filepath.Join(dir, "notify")
	check(t, os.WriteFile(file, []byte("destination: {bootstrap_servers: ['127.0.0.1:1']}\nhttp: {listen: '127.0.0.1:0'}\n"), 0o600))
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
	check(t, err)
	defer conn.Close()
	reader, writer, err := os.Pipe()
	check(t, err)
	check(t, reader.Close()) // every write from now on is refused

	cmd := exec.Command("mirrord", "run", "--config", file)
	cmd.Stdout, cmd.Stderr, cmd.Env = writer, writer, append(os.Environ(), "NOTIFY_SOCKET="+notify)
	check(t, cmd.Start())
	check(t, writer.Close())
	defer func() { _ = cmd.Process.Kill() }()
	awaitReady(t, conn)
	check(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("mirrord run ended by %v, want exit code 0", err)
	}
}

// awaitReady waits for the daemon's READY=1.
func awaitReady(t *testing.T, conn *net.UnixConn) {
	t.Helper()
	check(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	for buf := make([]byte, 4096); ; {
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("the daemon was never ready: %v", err)
		}
		if bytes.Contains(buf[:n], []byte("READY=1")) {
			return
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
