package daemon

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"mirrord/internal/config"
	"mirrord/internal/fetcher"
	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/mmm"
	"mirrord/internal/statestore"
)

func TestDefaultsOfTheFileAreThoseOfThePackages(t *testing.T) {
	d := config.Default()
	for _, c := range []struct{ name, got, want any }{
		{"fetcher", fetcherConfig(&d), fetcher.DefaultConfig()},
		{"metadata", mmmConfig(&d), mmm.DefaultConfig()},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: file says %+v, package %+v", c.name, c.got, c.want)
		}
	}
	if errs := fetcherConfig(&d).Validate(""); len(errs) > 0 {
		t.Error(errs)
	}
	if err := errors.Join(coordinatorConfig(&d).Validate(), mmmConfig(&d).Validate()); err != nil {
		t.Error(err)
	}
}

// registry opens sources without a network and counts what is open.
func registry(t *testing.T) (s *sources, open map[string]int) {
	t.Helper()
	open = map[string]int{}
	s = &sources{open: func(name string, c mirror.Connection) (*kafka.Cluster, func(), error) {
		cluster, err := kafka.Open(kafka.Config{Connection: c})
		open[name]++
		return cluster, func() { cluster.Close(); open[name]-- }, err
	}}
	t.Cleanup(func() { s.closeAll() })
	return s, open
}

func definition(name, bootstrap string) mirror.Definition {
	d := mirror.DefaultDefinition(name)
	d.Source.BootstrapServers = []string{bootstrap}
	return d
}

func mustGet(t *testing.T, s *sources, d mirror.Definition) *kafka.Cluster {
	t.Helper()
	c, err := s.get(d)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestASourceIsRebuiltOnlyWhenItsConnectionChanges(t *testing.T) {
	s, open := registry(t)
	d := definition("east", "a:1")
	first := mustGet(t, s, d)
	d.TopicsInclude, d.Throttle = []string{"x"}, 5
	if mustGet(t, s, d) != first {
		t.Error("another setting rebuilt the connection")
	}
	if mustGet(t, s, definition("west", "a:1")) == first {
		t.Error("two mirrors share a connection")
	}
	d.Source.Security.Protocol = "SSL"
	second := mustGet(t, s, d)
	if second == first || open["east"] != 2 {
		t.Errorf("a changed connection was not opened: %v", open)
	}
	if got := s.list(); len(got) != 2 || got[0].cluster != second {
		t.Errorf("the list does not show the newest: %+v", got)
	}
}

func TestUnusedSourcesAreClosed(t *testing.T) {
	s, open := registry(t)
	old, current := definition("east", "a:1"), definition("east", "b:1")
	mustGet(t, s, old)
	mustGet(t, s, current)
	mustGet(t, s, definition("gone", "c:1"))
	wanted := func(name string) (mirror.Connection, bool) { return current.Source, name == "east" }
	s.prune(time.Now(), wanted)
	if open["east"] != 2 || open["gone"] != 1 {
		t.Errorf("closed at once, while others finish with it: %v", open)
	}
	s.prune(time.Now().Add(sourceGrace+time.Second), wanted)
	if open["east"] != 1 || open["gone"] != 0 {
		t.Errorf("after the grace: %v", open)
	}
	if mustGet(t, s, current) != s.list()[0].cluster {
		t.Error("the current connection was closed")
	}
	if err := s.closeAll(); err != nil || open["east"] != 0 {
		t.Errorf("%v %v", open, err)
	}
	if _, err := s.get(current); err == nil {
		t.Error("a connection was opened after the end")
	}
}

func TestAConnectionThatWasGivenUpIsOpenedAnew(t *testing.T) {
	s, open := registry(t)
	east := definition("east", "a:1")
	first := mustGet(t, s, east)
	s.renew(east)
	second := mustGet(t, s, east)
	if second == first || mustGet(t, s, east) != second || s.list()[0].cluster != second {
		t.Error("the connection that was given up is still used")
	}
	wanted := func(string) (mirror.Connection, bool) { return east.Source, true }
	if s.prune(time.Now(), wanted); open["east"] != 2 {
		t.Errorf("closed at once, while others finish with it: %v", open)
	}
	if s.prune(time.Now().Add(sourceGrace+time.Second), wanted); open["east"] != 1 || mustGet(t, s, east) != second {
		t.Errorf("after the grace: %v", open)
	}
}

// answering is a cluster that answers or not.
type answering struct{ err error }

func (a *answering) ID(ctx context.Context) (string, error) { return "id", a.err }
func (a *answering) Bootstrap() []string                    { return []string{"k:9092"} }

func TestASourceThatComesBackIsTold(t *testing.T) {
	src := &answering{err: errors.New("refused")}
	var told []string
	g := newGatherer()
	h := &health{
		sources: func() map[string]asker { return map[string]asker{"east": src} }, sourceUp: func(name string) { told = append(told, name) },
		metrics: newMetrics(g.main, ""), log: quiet,
	}
	h.lookAtSources(t.Context())
	if got := h.sourcesSeen(); len(got) != 1 || got[0].Up || got[0].Error != "k:9092: refused" || got[0].Mirror != "east" {
		t.Errorf("got %+v", got)
	}
	src.err = nil
	h.lookAtSources(t.Context())
	h.lookAtSources(t.Context())
	if !reflect.DeepEqual(told, []string{"east"}) {
		t.Errorf("told %v, want once", told)
	}
	h.sources = func() map[string]asker { return nil }
	h.lookAtSources(t.Context())
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "mirrord_source_up" {
			t.Error("the series of a mirror that is gone stays")
		}
	}
}

func TestALoopThroughTheSourceIsRefused(t *testing.T) {
	id, theirs := mirror.TopicID{7}, mirror.TopicID{8}
	view := func(wish mirror.State, promoted bool) *statestore.View {
		return statestore.ViewOf(1,
			statestore.Mirror{Definition: mirror.DefaultDefinition("back"), LearntClusterID: "us"},
			statestore.Topic{Mirror: "back", Name: "orders", SourceID: id, DestinationID: theirs, Partitions: 2, Wish: wish, Promoted: promoted},
			statestore.LastMirrorEpoch{Partition: mirror.Partition{Mirror: "back", TopicID: id, Index: 1}, Position: mirror.Position{LeaderEpoch: 3, Offset: 44}})
	}
	running := mmm.OppositeIn(view(mirror.Mirroring, false), "us")
	if err := running.Loop("orders"); mirror.KindOf(err) != mirror.Loop {
		t.Errorf("running: %v", err)
	}
	if err := running.Loop("other"); err != nil {
		t.Errorf("another topic: %v", err)
	}
	stopped := mmm.OppositeIn(view(mirror.Stopped, true), "us")
	if err := stopped.Loop("orders"); err != nil {
		t.Errorf("stopped: %v", err)
	}
	at := mirror.Position{LeaderEpoch: 3, Offset: 44}
	for _, tt := range []struct {
		partition int32
		from, to  mirror.TopicID
		want      mirror.Position
	}{{1, theirs, id, at}, {0, theirs, id, mirror.NoPosition}, {1, mirror.TopicID{9}, id, mirror.NoPosition}, {1, theirs, mirror.TopicID{9}, mirror.NoPosition}} {
		of := mirror.Target{Partition: mirror.Partition{Mirror: "there", TopicID: tt.from, Index: tt.partition}, Topic: "orders", DestinationID: tt.to}
		if got := stopped.LastMirrored(of); got != tt.want {
			t.Errorf("last mirrored position of %+v: %+v, want %+v", of, got, tt.want)
		}
	}
	e := effects{view: statestore.ViewOf(1, statestore.LastMirrorEpoch{Partition: mirror.Partition{Mirror: "there", TopicID: theirs, Index: 1}, Position: mirror.Position{Offset: 30}})}
	of := mirror.Target{Partition: mirror.Partition{Mirror: "there", TopicID: theirs, Index: 1}, Topic: "orders", DestinationID: id}
	if got := e.lastMirrored(stopped, of); got != at {
		t.Errorf("mirrored up to 30, then back up to 44: %+v", got)
	}
	if got := e.lastMirrored(mmm.Opposite{}, of); got.Offset != 30 {
		t.Errorf("mirrored up to 30: %+v", got)
	}
}
