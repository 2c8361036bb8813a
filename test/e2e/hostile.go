package e2e

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
)

// A Story is what one seed makes: topics with a past and a present that are as bad as topics get, and faults while they
// are mirrored. It is made of ingredients, each with an id and a random source of its own, so that leaving one out
// changes no other: a story that fails is shrunk that way.
type Story struct {
	Seed                  uint64
	Transactions, Fillers string
	Instances             int
	Static                bool // instances with a fixed id, which take over at once
	Threads               int
	Replicas              int // of the source's topics; where there are two, leaders move from one to the other
	Tales                 []*Tale
	Faults                []Ingredient
}

// Ingredient is one thing that happens in a story.
type Ingredient struct{ ID, Name string }

// Tale is the story of one topic.
type Tale struct {
	Ingredient
	Settings       []string
	Before, During []Ingredient // before the mirror begins, and while it runs
}

// topicKinds and how often stories draw them.
var topicKinds = []struct {
	name     string
	weight   int
	settings []string
}{
	{"delete", 4, nil},
	{"append time", 2, []string{"message.timestamp.type", "LogAppendTime"}},
	// cleaned before the mirror begins, then never again: both sides stay equal to the letter
	{"settled", 4, []string{"cleanup.policy", "compact", "segment.ms", "1000", "min.cleanable.dirty.ratio", "0.0001", "max.compaction.lag.ms", "1000", "delete.retention.ms", "0"}},
	// cleaned all the time, on both sides
	{"living", 2, []string{"cleanup.policy", "compact", "segment.ms", "1000", "min.cleanable.dirty.ratio", "0.0001", "max.compaction.lag.ms", "1000"}},
	{"compact and delete", 2, []string{"cleanup.policy", "compact,delete", "segment.ms", "1000", "min.cleanable.dirty.ratio", "0.0001", "max.compaction.lag.ms", "1000"}},
}

func (s Story) rand(id string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return rand.New(rand.NewPCG(s.Seed, h.Sum64()))
}

// NewStory makes the story of a seed without the ingredients whose ids are named.
func NewStory(seed uint64, without ...string) Story {
	s := Story{Seed: seed}
	r := s.rand("story")
	s.Transactions = pick(r, "exact", "exact", "committed")
	s.Fillers = "markers"
	if s.Transactions == "committed" {
		s.Fillers = pick(r, "markers", "transactions")
	}
	s.Instances, s.Static, s.Threads = 1+r.IntN(4)/3, r.IntN(2) == 0, 1+r.IntN(2)
	for i := range 2 + r.IntN(3) {
		s.Tales = append(s.Tales, s.tale(fmt.Sprint("t", i)))
	}
	for i := range 1 + r.IntN(5) {
		id := fmt.Sprint("f", i)
		s.Faults = append(s.Faults, Ingredient{id, faults[weighted(s.rand(id+"?"), len(faults), func(i int) int { return faults[i].weight })].name})
	}
	s.moveSource()
	for _, id := range without {
		s.drop(id)
	}
	return s
}

// moveSource gives some stories a source whose leaders move among the faults.
func (s *Story) moveSource() {
	r := s.rand("source")
	if s.Replicas = 1 + r.IntN(3)/2; s.Replicas == 1 {
		return
	}
	for i := range 1 + r.IntN(4) {
		s.Faults = slices.Insert(s.Faults, r.IntN(len(s.Faults)+1), Ingredient{fmt.Sprint("l", i), "move source leaders"})
	}
}

func (s Story) tale(id string) *Tale {
	r := s.rand(id)
	kind := topicKinds[weighted(r, len(topicKinds), func(i int) int { return topicKinds[i].weight })]
	t := &Tale{Ingredient: Ingredient{id, kind.name}, Settings: append([]string{
		"retention.ms", "-1", "message.timestamp.after.max.ms", "9223372036854775807", "max.message.bytes", "8388608",
		"compression.type", pick(r, "producer", "producer", "producer", "gzip", "lz4", "zstd", "uncompressed"),
	}, kind.settings...)}
	for i := range 2 + r.IntN(6) {
		t.Before = append(t.Before, s.act(t, fmt.Sprint(id, ".b", i)))
	}
	for i := range 1 + r.IntN(5) {
		t.During = append(t.During, s.act(t, fmt.Sprint(id, ".d", i)))
	}
	return t
}

func (s Story) act(t *Tale, id string) Ingredient {
	r := s.rand(id + "?")
	return Ingredient{id, acts[weighted(r, len(acts), func(i int) int {
		if acts[i].fits != nil && !acts[i].fits(t) {
			return 0
		}
		return acts[i].weight
	})].name}
}

// drop leaves an ingredient out.
func (s *Story) drop(id string) {
	is := func(i Ingredient) bool { return i.ID == id }
	s.Faults = slices.DeleteFunc(s.Faults, is)
	s.Tales = slices.DeleteFunc(s.Tales, func(t *Tale) bool { return t.ID == id })
	for _, t := range s.Tales {
		t.Before, t.During = slices.DeleteFunc(t.Before, is), slices.DeleteFunc(t.During, is)
	}
}

// IDs are the ids of what can be left out, the largest first.
func (s Story) IDs() (ids []string) {
	for _, t := range s.Tales {
		ids = append(ids, t.ID)
	}
	for _, f := range s.Faults {
		ids = append(ids, f.ID)
	}
	for _, t := range s.Tales {
		for _, a := range slices.Concat(t.Before, t.During) {
			ids = append(ids, a.ID)
		}
	}
	if len(s.Tales) == 1 {
		ids = ids[1:]
	}
	return ids
}

func (s Story) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: transactions %s, fillers %s, %d instances, static %v, %d threads, %d replicas at the source\n",
		s.Seed, s.Transactions, s.Fillers, s.Instances, s.Static, s.Threads, s.Replicas)
	line := func(head string, items []Ingredient) {
		fmt.Fprintf(&b, "  %s:", head)
		for _, i := range items {
			fmt.Fprintf(&b, " %s=%s;", i.ID, i.Name)
		}
		b.WriteString("\n")
	}
	for _, t := range s.Tales {
		fmt.Fprintf(&b, " %s: %s, %s\n", t.ID, t.Name, t.Settings[7])
		line("before", t.Before)
		line("during", t.During)
	}
	line("faults", s.Faults)
	return b.String()
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func weighted(r *rand.Rand, n int, weight func(int) int) int {
	sum := 0
	for i := range n {
		sum += weight(i)
	}
	at := r.IntN(sum)
	for i := range n {
		if at -= weight(i); at < 0 {
			return i
		}
	}
	return n - 1
}
