package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// checkDataDir looks whether exports could be written, by a file that is gone again at once. A directory that is not
// there yet would be made in the nearest one that is.
func checkDataDir(r *report, dir string) {
	const fix = "make it and give it to the daemon's user (the package and the unit do so for /var/lib/mirrord), or set data_dir"
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case err == nil && !info.IsDir():
			r.bad(fix, "data_dir %s: %s is not a directory", dir, at)
			return
		case err == nil:
			if err := tryToWrite(at); err != nil {
				r.note(fix, "data_dir %s: %s cannot be written to: %v; recover --reseed could not export there", dir, at, err)
			}
			return
		case !os.IsNotExist(err) || at == filepath.Dir(at):
			r.note(fix, "data_dir %s: %v; recover --reseed could not export there", dir, err)
			return
		}
	}
}

func tryToWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".mirrord-check-*")
	if cause, ok := errors.AsType[*os.PathError](err); ok {
		return cause.Err // the path is of no interest to anybody
	}
	if err != nil {
		return err
	}
	f.Close()
	return os.Remove(f.Name())
}

// overlapFix is for topics that two mirrors select.
const overlapFix = "leave it to one mirror: a topic of the destination has one source (topics_include, topics_exclude)"

// checkOverlaps finds topics that the file gives to several mirrors: those that one names and another one selects. It
// returns them.
func checkOverlaps(r *report, mirrors []mirror.Definition) map[string]bool {
	told := map[string]bool{}
	for i, d := range mirrors {
		for _, topic := range d.TopicsInclude {
			if p, err := mirror.ParsePattern(topic); err != nil || !p.Literal() || told[topic] || !selects(d, topic) {
				continue
			}
			for j, other := range mirrors {
				if i != j && selects(other, topic) {
					told[topic] = true
					r.bad(overlapFix, "topic %s is included by mirror %s and by mirror %s", topic, d.Name, other.Name)
					break
				}
			}
		}
	}
	return told
}

func selects(d mirror.Definition, topic string) bool {
	include, _ := mirror.ParsePatterns(d.TopicsInclude)
	exclude, _ := mirror.ParsePatterns(d.TopicsExclude)
	return include.Match(topic) && !exclude.Match(topic)
}

// selectedTopics are those of a source that a mirror selects, sorted.
func selectedTopics(d mirror.Definition, m kafka.Metadata) (selected []string) {
	for name, t := range m.Topics {
		if t.Err == nil && !t.Internal && selects(d, name) {
			selected = append(selected, name)
		}
	}
	slices.Sort(selected)
	return selected
}

// idleItems tells which items of topics_include select nothing: misspelt, not there yet, or not visible.
func (c *checker) idleItems(d mirror.Definition, selected []string) {
	var idle []string
	for _, item := range d.TopicsInclude {
		if p, err := mirror.ParsePattern(item); err == nil && !slices.ContainsFunc(selected, p.Match) {
			idle = append(idle, item)
		}
	}
	if len(idle) > 0 {
		c.note("see that they are spelt right, and that DESCRIBE on the topics is granted", "topics_include: without effect so far: %s", shortList(idle))
	}
}

// shared tells which topics another mirror selects, too.
func (c *checker) shared(d mirror.Definition, selected []string) {
	with := map[string][]string{}
	for _, topic := range selected {
		other, taken := c.mirrorOf[topic]
		switch {
		case !taken:
			c.mirrorOf[topic] = d.Name
		case !c.told[topic]:
			with[other] = append(with[other], topic)
		}
	}
	for _, other := range sortedKeys(with) {
		c.bad(overlapFix, "%s selected by mirror %s already: %s", mirror.Count(len(with[other]), "topic"), other, shortList(with[other]))
	}
}
