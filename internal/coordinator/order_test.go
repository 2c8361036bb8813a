package coordinator

import (
	"context"
	"strings"
	"testing"
	"time"

	"mirrord/internal/mirror"
)

// answered waits for the outcome of a command that was submitted.
func (i *instance) answered(id [16]byte) (out mirror.Outcome) {
	i.b.Helper()
	i.b.eventually(20*time.Second, func() string {
		var ok bool
		if out, ok = i.store.View().Outcome(id); !ok {
			return "no outcome"
		}
		return ""
	})
	return out
}

// told demands what an outcome says about a topic.
func told(t *testing.T, o mirror.Outcome, topic string, refused bool, words string) {
	t.Helper()
	for _, at := range o.Topics {
		if at.Topic == topic {
			if at.Refused != refused || !strings.Contains(at.Message, words) {
				t.Errorf("%s of %s: %+v; want refused %v, %q", o.Verb, topic, at, refused, words)
			}
			return
		}
	}
	t.Errorf("%s: nothing about %s: %+v", o.Verb, topic, o)
}

// The last word about a topic holds, however long an earlier command has to wait for the source; what commutes or is about
// other topics does not wait, everything else does.
func TestCommandsOfATopicKeepTheirOrder(t *testing.T) {
	b := newBench(t)
	i := b.start("one")
	i.owns(20*time.Second, all)
	i.mirrored("east", 1, "stopped", "paused", "other")
	do := func(verb mirror.Verb, topics ...string) mirror.Outcome {
		return i.command(mirror.Command{Verb: verb, Mirror: "east", Topics: topics})
	}
	do(mirror.VerbStop, "stopped")
	do(mirror.VerbPause, "paused")
	release := make(chan struct{})
	i.mu.Lock()
	i.resolve = func(items, _ []string) ([]string, map[string]error, error) {
		<-release
		return []string{"stopped", "paused", "new"}, nil, nil
	}
	i.mu.Unlock()
	begun := i.submit(mirror.Command{Verb: mirror.VerbStart, Mirror: "east", Topics: []string{"stopped", "paused", "new", "to-come.*"}})
	resumed := i.submit(mirror.Command{Verb: mirror.VerbResume, Mirror: "east", Topics: []string{"paused"}})
	told(t, do(mirror.VerbStop, "stop.*", "to-come.*"), "stopped", false, "")
	told(t, do(mirror.VerbPause, "other"), "other", false, "")
	told(t, do(mirror.VerbResume, "other"), "other", false, "")
	for _, id := range [][16]byte{begun, resumed} {
		if out, done := i.store.View().Outcome(id); done {
			t.Errorf("answered before its turn: %+v", out)
		}
	}
	told(t, do(mirror.VerbPause, "paused"), "paused", false, "")
	told(t, i.answered(resumed), "paused", true, "overtaken by a later pause")
	close(release)
	out := i.answered(begun)
	told(t, out, "stopped", true, "overtaken by a later stop")
	told(t, out, "paused", true, "overtaken by a later pause")
	told(t, out, "to-come.*", true, "overtaken by a later stop")
	told(t, out, "new", false, "")
	i.reach("east", 1, mirror.Stopped, "stopped")
	i.reach("east", 1, mirror.Paused, "paused")
	if m, _ := i.store.View().Mirror("east"); len(m.PendingInclude) > 0 {
		t.Errorf("waits for topics that a later stop was about: %v", m.PendingInclude)
	}
}

// reseeding is a bench whose reseeds stop before and after their commit.
type reseeding struct {
	*instance
	exports   chan string   // topics whose export has begun
	exported  chan struct{} // lets one export end
	committed chan error    // what became of commits
	recreated chan struct{} // lets one deletion end
}

func (b *bench) reseeding(name string) *reseeding {
	r := &reseeding{exports: make(chan string, 10), exported: make(chan struct{}, 10), committed: make(chan error, 10), recreated: make(chan struct{}, 10)}
	r.instance = b.start(name, func(d *Deps) {
		d.Reseed = func(ctx context.Context, _, topic string, commit func(context.Context) error) (string, error) {
			r.exports <- topic
			select {
			case <-r.exported:
			case <-ctx.Done():
				return "", ctx.Err()
			}
			if err := commit(ctx); err != nil {
				r.committed <- err
				return "", err
			}
			r.committed <- nil
			select {
			case <-r.recreated:
				return "/exports/" + topic, nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
	})
	r.owns(20*time.Second, all)
	return r
}

// fails lets the first partition of topics diverge.
func (i *instance) fails(topics ...string) {
	i.b.Helper()
	for _, topic := range topics {
		var target mirror.Target
		i.b.eventually(10*time.Second, func() string {
			target, _ = i.path.target(topic, 0)
			return unless(target.Run, topic+" does not run")
		})
		i.c.Failed(target, mirror.Errorf(mirror.Diverged, "other records"))
	}
	i.reach("east", 1, mirror.Failed, topics...)
}

// A stop ends the reseed of a topic that is being exported and of one that waits; it waits itself for one that is being
// deleted, and the commands about that topic which follow wait, too.
func TestStopOvertakesAReseedUntilItsCommit(t *testing.T) {
	b := newBench(t)
	i := b.reseeding("one")
	i.mirrored("east", 1, "a", "b", "c")
	i.fails("a", "b", "c")
	reseed := i.submit(mirror.Command{Verb: mirror.VerbRecover, Mirror: "east", Topics: []string{"[abc]"}, Reseed: true})
	if topic := <-i.exports; topic != "a" {
		t.Fatalf("began with %s", topic)
	}
	i.command(mirror.Command{Verb: mirror.VerbStop, Mirror: "east", Topics: []string{"b"}})
	i.reach("east", 1, mirror.Stopped, "b")
	i.exported <- struct{}{}
	if err := <-i.committed; err != nil {
		t.Fatal(err)
	}
	stop := i.submit(mirror.Command{Verb: mirror.VerbStop, Mirror: "east", Topics: []string{"a", "c"}})
	again := i.submit(mirror.Command{Verb: mirror.VerbStart, Mirror: "east", Topics: []string{"c"}})
	i.command(mirror.Command{Verb: mirror.VerbStart, Mirror: "east", Topics: []string{"b"}}) // both have been read by now
	for _, id := range [][16]byte{stop, again} {
		if out, done := i.store.View().Outcome(id); done {
			t.Errorf("answered while the topic is being deleted: %+v", out)
		}
	}
	i.recreated <- struct{}{}
	out := i.answered(reseed)
	told(t, out, "a", false, "/exports/a")
	told(t, out, "b", true, "overtaken by a later stop")
	told(t, out, "c", true, "overtaken by a later stop")
	if refusals(i.answered(stop))+refusals(i.answered(again)) > 0 {
		t.Error("refused what had to wait")
	}
	i.reach("east", 1, mirror.Stopped, "a")
	if now, _ := i.store.View().Topic("east", "c"); now.Wish != mirror.Mirroring {
		t.Errorf("the start after the stop is lost: %+v", now)
	}
	if len(i.exports) > 0 {
		t.Errorf("%s was reseeded", <-i.exports)
	}
}

// Nothing is deleted after anything was decided about a topic, or while a partition of it moves.
func TestReseedIsCommittedOnlyAsItBegan(t *testing.T) {
	b := newBench(t)
	i := b.reseeding("one")
	i.mirrored("east", 2, "wished", "moves")
	i.fails("wished", "moves")
	reseed := i.submit(mirror.Command{Verb: mirror.VerbRecover, Mirror: "east", Topics: []string{"wished", "moves"}, Reseed: true})
	for range 2 {
		if topic := <-i.exports; topic == "wished" {
			resp := i.c.WriteMirrorStates(t.Context(), mirror.WriteMirrorStatesRequest{MirrorName: "east", StoppedTopics: []string{"wished"}})
			if resp.ErrorCode != mirror.CodeNone {
				t.Fatalf("%+v", resp)
			}
		}
		i.exported <- struct{}{}
		if err := <-i.committed; err == nil {
			t.Fatal("agreed")
		}
	}
	out := i.answered(reseed)
	told(t, out, "wished", true, "decided")
	told(t, out, "moves", true, "partition 1 of topic moves is MIRRORING")
}

// The owner dies while it deletes a topic. A stop that comes then waits until the next owner has ended that.
func TestReseedBeyondRecallIsEndedByTheNextOwner(t *testing.T) {
	b := newBench(t)
	one := b.reseeding("one")
	one.mirrored("east", 1, "a")
	one.fails("a")
	reseed := one.submit(mirror.Command{Verb: mirror.VerbRecover, Mirror: "east", Topics: []string{"a"}, Reseed: true})
	<-one.exports
	one.exported <- struct{}{}
	if err := <-one.committed; err != nil {
		t.Fatal(err)
	}
	one.stop()
	two := b.reseeding("two")
	stop := two.submit(mirror.Command{Verb: mirror.VerbStop, Mirror: "east", Topics: []string{"a"}})
	<-two.exports
	two.exported <- struct{}{}
	if err := <-two.committed; err != nil {
		t.Fatalf("the stop was not waited with: %v", err)
	}
	if _, done := two.store.View().Outcome(stop); done {
		t.Error("stopped a topic that is being deleted")
	}
	two.recreated <- struct{}{}
	told(t, two.answered(reseed), "a", false, "/exports/a")
	told(t, two.answered(stop), "a", false, "")
	two.reach("east", 1, mirror.Stopped, "a")
	if now, _ := two.store.View().Topic("east", "a"); now.Recreating {
		t.Errorf("%+v", now)
	}
}

func unless(ok bool, why string) string {
	if ok {
		return ""
	}
	return why
}
