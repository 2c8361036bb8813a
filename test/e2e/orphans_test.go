package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// The markers of transactions expire at the source before they are copied (exact mode): the copy ends those transactions
// itself, and goes on with the one that is still open.
func TestMarkersThatExpired(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.D.SetBrokers(t, verification, "false")
	p.S.Topic(t, "t", 1)
	s := p.Mirror("t")
	s.MirrorExtra = []string{"transactions: exact"}
	m := NewDaemon(t, s)
	m.Start()
	committed, aborted, open := p.S.Transactional(t, "committed", false), p.S.Transactional(t, "aborted", true), p.S.Transactional(t, "open", false)
	must(t, errors.Join(committed.BeginTransaction(), aborted.BeginTransaction(), open.BeginTransaction()))
	must(t, errors.Join(send(committed, Numbered("t", 0, 0, 3)...), send(aborted, Numbered("t", 0, 3, 3)...), send(open, Numbered("t", 0, 6, 3)...)))
	AwaitLevel(t, p.S, p.D, soon, "t")
	m.Do("pause", "--mirror", "east", "--topics", "t")
	must(t, errors.Join(end(committed, true), end(aborted, false)))
	p.S.Send(t, nil, Numbered("t", 0, 9, 20)...)
	p.S.trim(t, "t", 0, 20)
	must(t, errors.Join(committed.BeginTransaction(), send(committed, Numbered("t", 0, 29, 3)...)))
	m.Do("resume", "--mirror", "east", "--topics", "t")
	level := func(what string) {
		t.Helper()
		AwaitLevel(t, p.S, p.D, soon, "t")
		Eventually(t, soon, func() error {
			source, err := p.S.Logs(context.Background(), "t")
			if err != nil {
				return err
			}
			copied, err := p.D.Logs(context.Background(), "t")
			want := max(source[0].Stable, source[0].Start) // brokers let it lie below the log start
			if err == nil && copied[0].Stable != want {
				err = fmt.Errorf("%s: the last stable offset is %d, want %d", what, copied[0].Stable, want)
			}
			return err
		})
	}
	level("with transactions open")
	must(t, errors.Join(end(open, true), end(committed, true)))
	level("at the end")
	must(t, Alike(p.S, p.D, View{Uncommitted: true}, "t"))
	Identical(t, p.S, p.D, "t")
}
