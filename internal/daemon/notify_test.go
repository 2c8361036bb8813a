package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mirrord/internal/config"
	"mirrord/internal/control"
)

// fakeManager is a service manager: it gives the messages that it is told.
func fakeManager(t *testing.T) <-chan string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	messages := make(chan string, 1000)
	go func() {
		defer close(messages)
		buf := make([]byte, 4096)
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			messages <- string(buf[:n])
		}
	}()
	return messages
}

// expectBoth waits for a message of each beginning, in whatever order they come.
func expectBoth(t *testing.T, messages <-chan string, one, other string) map[string]string {
	t.Helper()
	got := map[string]string{}
	deadline := time.After(20 * time.Second)
	for len(got) < 2 {
		select {
		case m := <-messages:
			for _, prefix := range []string{one, other} {
				if strings.HasPrefix(m, prefix) && got[prefix] == "" {
					got[prefix] = m
				}
			}
		case <-deadline:
			t.Fatalf("of %s and %s only %v came", one, other, got)
		}
	}
	return got
}

// expect waits for a message that begins so.
func expect(t *testing.T, messages <-chan string, prefix string) string {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case m := <-messages:
			if strings.HasPrefix(m, prefix) {
				return m
			}
		case <-deadline:
			t.Fatalf("no message %s", prefix)
		}
	}
}

func TestNotifierSpeaksTheProtocol(t *testing.T) {
	messages := fakeManager(t)
	n := newNotifier(quiet)
	n.ready()
	n.say("waiting for\nthe destination")
	n.say("waiting for\nthe destination")
	n.reloading()
	n.stopping()
	for _, want := range []string{"READY=1", "STATUS=waiting for; the destination", "RELOADING=1\nMONOTONIC_USEC=", "STOPPING=1\nSTATUS=stopping"} {
		if got := <-messages; !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestWithoutAServiceManagerNothingIsSent(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	newNotifier(slog.New(slog.NewTextHandler(failing{t}, nil))).ready()
}

type failing struct{ t *testing.T }

func (f failing) Write(b []byte) (int, error) {
	f.t.Errorf("logged: %s", b)
	return len(b), nil
}

func TestWatchdogIsFedOnlyWhileAllLoopsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fed atomic.Int64
		var stuck atomic.Bool
		w := watchdog{
			notifier: &notifier{log: quiet, send: func(string) error { fed.Add(1); return nil }},
			interval: 40 * time.Second,
			probes: []probe{
				{"well", func(context.Context) error { return nil }},
				{"sometimes stuck", func(ctx context.Context) error {
					if stuck.Load() {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				}},
			},
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.run(ctx) }()
		time.Sleep(35 * time.Second)
		if n := fed.Load(); n != 4 {
			t.Errorf("fed %d times in 35 s, want 4", n)
		}
		stuck.Store(true)
		time.Sleep(5 * time.Minute)
		if n := fed.Load(); n != 4 {
			t.Errorf("fed %d times while a loop was stuck", n-4)
		}
		cancel()
		<-done
	})
}

func TestWatchdogNamesTheLoop(t *testing.T) {
	var log bytes.Buffer
	w := watchdog{
		notifier: &notifier{log: slog.New(slog.NewTextHandler(&log, nil))}, interval: time.Minute,
		probes: []probe{{"fetchers", func(context.Context) error { return errors.New("no turn") }}},
	}
	if w.alive(t.Context()) || !strings.Contains(log.String(), "fetchers: no turn") {
		t.Errorf("log: %s", log.String())
	}
}

func TestStatusLineSaysWhatIsWaitedFor(t *testing.T) {
	for _, c := range []struct {
		r    control.Readiness
		want string
	}{
		{control.Readiness{WaitingFor: "the destination: x"}, "waiting for the destination: x"},
		{
			control.Readiness{Ready: true, ShardsOwned: 5, Sources: []control.Contact{{Mirror: "east"}, {Mirror: "west", Up: true}}},
			"1 mirror, 2 partitions, 1 of them failed; 5 shards owned; source of east is unreachable",
		},
	} {
		if got := statusLine(c.r, 1, map[string]int{"MIRRORING": 1, "FAILED": 1}); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestLogFormats(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("JOURNAL_STREAM", "")
	newLogger("auto", write, slog.LevelInfo).Info("plain", "k", "v")
	newLogger("json", write, slog.LevelInfo).Info("object", "k", "v")
	newLogger("text", write, slog.LevelWarn).Info("hidden")
	write.Close()
	var got bytes.Buffer
	if _, err := got.ReadFrom(read); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(got.String()), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "time=") || !strings.Contains(lines[0], "level=INFO msg=plain k=v") || !strings.Contains(lines[1], `"msg":"object","k":"v"`) {
		t.Errorf("got %q", lines)
	}
}

func TestJournalLinesBearPrioritiesAndNoTime(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(journal{&out}, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: dropTime}))
	log.Error("e")
	log.Warn("w")
	log.Info("i")
	log.Debug("d")
	if want := "<3>level=ERROR msg=e\n<4>level=WARN msg=w\n<6>level=INFO msg=i\n<7>level=DEBUG msg=d\n"; out.String() != want {
		t.Errorf("got %q", out.String())
	}
}

func TestLevels(t *testing.T) {
	for text, want := range map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError} {
		if got := parseLevel(config.Log{Level: text}); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
