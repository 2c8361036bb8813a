package daemon

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"

	"github.com/lmittmann/tint"

	"mirrord/internal/config"
)

// newLogger makes the logger that a configuration asks for. level can be changed later.
func newLogger(format string, out *os.File, level slog.Leveler) *slog.Logger {
	switch {
	case format == "json":
		return slog.New(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: level}))
	case underJournal(out):
		return slog.New(slog.NewTextHandler(journal{out}, &slog.HandlerOptions{Level: level, ReplaceAttr: dropTime}))
	case format == "auto" && isTerminal(out):
		return slog.New(tint.NewTextHandler(out, &tint.Options{Level: level, TimeFormat: "15:04:05.000"}))
	}
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))
}

// parseLevel reads log.level, which was checked.
func parseLevel(c config.Log) (level slog.Level) {
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return slog.LevelInfo
	}
	return level
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != ""
}

// underJournal reports whether f goes to the systemd journal, which keeps the time itself. $JOURNAL_STREAM holds device
// and inode of the stream, since children inherit the variable even when their output goes elsewhere.
func underJournal(f *os.File) bool {
	stream := os.Getenv("JOURNAL_STREAM")
	if stream == "" {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && fmt.Sprintf("%d:%d", stat.Dev, stat.Ino) == stream
}

func dropTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// journal marks each line with its syslog priority (sd-daemon(3)), so that journalctl -p works.
type journal struct{ out io.Writer }

var priorities = []struct{ level, mark []byte }{
	{[]byte("level=DEBUG"), []byte("<7>")},
	{[]byte("level=INFO"), []byte("<6>")},
	{[]byte("level=WARN"), []byte("<4>")},
	{[]byte("level=ERROR"), []byte("<3>")},
}

func (j journal) Write(line []byte) (int, error) {
	marked := line
	for _, p := range priorities {
		if bytes.HasPrefix(line, p.level) {
			marked = append(append(make([]byte, 0, len(line)+3), p.mark...), line...)
		}
	}
	if _, err := j.out.Write(marked); err != nil {
		return 0, err
	}
	return len(line), nil
}
