package mmm

import (
	"context"
	"log/slog"
	"time"
)

// quiet is how long the same words are not repeated, however often their cause comes and goes.
const quiet = time.Minute

// speaker writes a log line once per change of message instead of once per cycle. It belongs to one goroutine.
type speaker struct {
	log  *slog.Logger
	last map[string]said
}

type said struct {
	message string
	at      time.Time
	over    bool // the cause has gone since
}

func newSpeaker(log *slog.Logger) *speaker {
	return &speaker{log: log, last: map[string]said{}}
}

// say logs what is the matter with a subject, unless it is no news: then it is false.
func (s *speaker) say(ctx context.Context, level slog.Level, subject, event, message string, args ...any) (news bool) {
	if !s.news(subject, message) {
		return false
	}
	s.log.Log(ctx, level, event, args...) //nolint:sloglint // the callers' events are literals
	return true
}

// news notes what is the matter with a subject; false: the same was the last thing said about it.
func (s *speaker) news(subject, message string) bool {
	before, known := s.last[subject]
	same := known && before.message == message
	if same && (!before.over || time.Since(before.at) < quiet) {
		return false
	}
	s.last[subject] = said{message: message, at: time.Now()}
	return true
}

// over notes that nothing is the matter with a subject any more.
func (s *speaker) over(subject string) {
	if before, known := s.last[subject]; known {
		before.over = true
		s.last[subject] = before
	}
}

// names shortens a list for a log line.
func names(list []string) []string {
	const most = 5
	if len(list) > most {
		return append(list[:most:most], "…")
	}
	return list
}
