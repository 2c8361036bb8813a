package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Mistake is one thing that is wrong with a configuration.
type Mistake struct {
	Key  string // full key, like mirrors[0].topics_include; empty: the file as a whole
	Line int    // of the key, or of what it is missing in; 0: not known
	Env  string // the environment variable that gave the value; empty: the file did
	Text string
}

// Mistakes is the error of a configuration that cannot be used. Nothing of it may take effect.
type Mistakes struct {
	File string
	List []Mistake // by line, never empty
}

// Error has one line per mistake.
func (m *Mistakes) Error() string {
	lines := make([]string, len(m.List))
	for i, one := range m.List {
		lines[i] = m.Describe(one)
	}
	return strings.Join(lines, "\n")
}

// Describe is one mistake on one line: where, which key, what.
func (m *Mistakes) Describe(one Mistake) string {
	at := m.File
	switch {
	case one.Env != "":
		at = one.Env
	case one.Line > 0:
		at = fmt.Sprintf("%s:%d", m.File, one.Line)
	}
	if one.Key == "" {
		return at + ": " + one.Text
	}
	return at + ": " + one.Key + ": " + one.Text
}

// collector gathers mistakes and knows where each key stands.
type collector struct {
	doc  document
	env  map[string]string // key → variable that set it
	list []Mistake
}

// add notes a mistake about a key; errors joined into one are noted one by one.
func (c *collector) add(key string, err error) {
	if err == nil {
		return
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range many.Unwrap() {
			c.add(key, one)
		}
		return
	}
	m := Mistake{Key: key, Text: err.Error(), Env: c.env[key]}
	if m.Env == "" {
		m.Line = c.doc.line(key)
	}
	c.list = append(c.list, m)
}

func (c *collector) addf(key, format string, args ...any) { c.add(key, fmt.Errorf(format, args...)) }

// has reports whether something is wrong already with key or a key below it.
func (c *collector) has(key string) bool {
	return slices.ContainsFunc(c.list, func(m Mistake) bool {
		return m.Key == key || strings.HasPrefix(m.Key, key+".") || strings.HasPrefix(m.Key, key+"[")
	})
}

func (c *collector) result(file string) error {
	if len(c.list) == 0 {
		return nil
	}
	slices.SortStableFunc(c.list, func(a, b Mistake) int { return cmp.Compare(a.Line, b.Line) })
	return &Mistakes{File: file, List: c.list}
}
