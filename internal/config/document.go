package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// document is a parsed file: what it holds, and on which line each key stands.
type document struct {
	tree  map[string]any
	lines map[string]int
}

// line is where a key stands. A key that is not in the file is missing in the nearest one around it that is.
func (d document) line(key string) int {
	for ; key != ""; key = parentKey(key) {
		if line := d.lines[key]; line > 0 {
			return line
		}
	}
	return 1
}

// parentKey is the key around a key; empty: the file as a whole.
func parentKey(key string) string { return key[:max(0, strings.LastIndexAny(key, ".["))] }

// shape is what may stand at a place of the document.
type shape struct {
	keys map[string]*shape // a mapping
	each *shape            // a list of mappings
}

// shapeOf builds the shape of all keys of the table.
func shapeOf(names []string, mirrorNames []string) *shape {
	root := shapeOfNames(names)
	root.keys["mirrors"] = &shape{each: shapeOfNames(mirrorNames)}
	return root
}

func shapeOfNames(names []string) *shape {
	root := &shape{keys: map[string]*shape{}}
	for _, name := range names {
		at := root
		for _, part := range splitKey(name) {
			if at.keys == nil {
				at.keys = map[string]*shape{}
			}
			if at.keys[part] == nil {
				at.keys[part] = &shape{}
			}
			at = at.keys[part]
		}
	}
	return root
}

// maxNodes bounds a file that uses anchors to grow without end.
const maxNodes = 100_000

// walker checks a document against its shape and notes lines.
type walker struct {
	c     *collector
	nodes int
	last  int // line of the last node walked
}

// parseDocument reads YAML. Whatever is wrong with it goes to the collector; the tree holds what could be read. False:
// it cannot be read at all, so that looking at single keys would only mislead.
func parseDocument(data []byte, root *shape, c *collector) bool {
	c.doc = document{tree: map[string]any{}, lines: map[string]int{}}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var node, second yaml.Node
	err := decoder.Decode(&node)
	if errors.Is(err, io.EOF) {
		return true
	}
	if err != nil {
		c.syntax(data, err)
		return false
	}
	err = decoder.Decode(&second)
	switch {
	case err == nil:
		c.list = append(c.list, Mistake{Line: second.Line, Text: "a second YAML document: one file holds one configuration"})
	case !errors.Is(err, io.EOF):
		c.syntax(data, err)
	}
	w := walker{c: c}
	w.mapping(node.Content[0], root, "", 0)
	if w.nodes > maxNodes {
		c.list = append(c.list, Mistake{Line: w.last, Text: "too many or endless anchors"})
		return false
	}
	if root := resolve(node.Content[0]); root.Kind != yaml.MappingNode {
		return len(c.list) == 0 // null: as good as empty
	}
	if err := node.Decode(&c.doc.tree); err != nil {
		c.syntax(data, err)
		return false
	}
	return true
}

var (
	yamlLine   = regexp.MustCompile(`line (\d+): `)
	yamlAnchor = regexp.MustCompile(`anchor '([^']+)'`)
)

// syntax notes an error of the YAML library, whose text names the line as a rule.
func (c *collector) syntax(data []byte, err error) {
	m := Mistake{Text: err.Error()}
	if found := yamlLine.FindStringSubmatch(m.Text); found != nil {
		m.Line, _ = strconv.Atoi(found[1])
	} else if found := yamlAnchor.FindStringSubmatch(m.Text); found != nil {
		m.Line = firstLine(data, func(line []byte) bool { return bytes.Contains(line, []byte("*"+found[1])) })
	} else {
		m.Line = firstLine(data, unprintable)
	}
	if m.Line > 0 || len(c.list) == 0 { // else it is a consequence of what was found already
		c.list = append(c.list, m)
	}
}

// firstLine is the number of the first line that is so; 0: none is.
func firstLine(data []byte, so func([]byte) bool) int {
	n := 0
	for line := range bytes.Lines(data) {
		if n++; so(line) {
			return n
		}
	}
	return 0
}

// unprintable reports whether a line holds what no YAML file may.
func unprintable(line []byte) bool {
	return !utf8.Valid(line) || bytes.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) })
}

func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// at walks what stands below key.
func (w *walker) at(n *yaml.Node, s *shape, key string, depth int) {
	if w.nodes++; w.nodes > maxNodes || depth > 32 {
		w.nodes = maxNodes + 1
		return
	}
	w.last = n.Line
	switch {
	case s.keys != nil:
		w.mapping(n, s, key, depth)
	case s.each != nil:
		w.list(n, s, key, depth)
	default:
		w.items(n, key)
	}
}

// items notes the lines of a list of scalars.
func (w *walker) items(n *yaml.Node, key string) {
	if n = resolve(n); n.Kind == yaml.SequenceNode {
		for i, item := range n.Content {
			w.c.doc.lines[fmt.Sprintf("%s[%d]", key, i)] = item.Line
		}
	}
}

func (w *walker) list(n *yaml.Node, s *shape, key string, depth int) {
	n = resolve(n)
	if n.Kind != yaml.SequenceNode {
		if n.Tag != "!!null" {
			w.c.addf(key, "must be a list")
			*n = yaml.Node{Kind: yaml.SequenceNode, Line: n.Line}
		}
		return
	}
	for i, item := range n.Content {
		at := fmt.Sprintf("%s[%d]", key, i)
		w.c.doc.lines[at] = item.Line
		w.at(item, s.each, at, depth+1)
	}
}

// mapping checks the keys of a mapping. Repeated ones are reported and taken out, so that the rest can be read.
func (w *walker) mapping(n *yaml.Node, s *shape, key string, depth int) {
	n = resolve(n)
	if n.Kind != yaml.MappingNode {
		if n.Tag != "!!null" {
			w.c.list = append(w.c.list, Mistake{Key: key, Line: n.Line, Text: "must be a mapping of keys to values"})
			*n = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Line: n.Line}
		}
		return
	}
	seen := map[string]int{}
	var kept []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Tag == "!!merge" {
			w.merged(v, s, key, depth)
		} else if !w.entry(k, v, entryOf{s, key, depth, seen}) {
			continue
		}
		kept = append(kept, k, v)
	}
	n.Content = kept
}

// merged walks what a "<<" brings in.
func (w *walker) merged(v *yaml.Node, s *shape, key string, depth int) {
	if v = resolve(v); v.Kind == yaml.SequenceNode {
		for _, item := range v.Content {
			w.at(item, s, key, depth+1)
		}
		return
	}
	w.at(v, s, key, depth+1)
}

// entryOf says where an entry of a mapping stands.
type entryOf struct {
	shape *shape
	key   string
	depth int
	seen  map[string]int
}

// entry checks one key and reports whether it is to be kept.
func (w *walker) entry(k, v *yaml.Node, of entryOf) bool {
	name := resolve(k).Value
	full := joinKey(of.key, name)
	note := func(text string) {
		w.c.list = append(w.c.list, Mistake{Key: full, Line: k.Line, Text: text})
	}
	if first := of.seen[name]; first > 0 {
		note(fmt.Sprintf("given twice, first on line %d", first))
		return false
	}
	of.seen[name] = k.Line
	below, ok := of.shape.keys[name]
	if !ok {
		note(unknown(name, slices.Sorted(maps.Keys(of.shape.keys))))
		return false
	}
	w.c.doc.lines[full] = k.Line
	w.at(v, below, full, of.depth+1)
	return true
}

func unknown(name string, known []string) string {
	if guess := nearest(name, known); guess != "" {
		return fmt.Sprintf("unknown key; did you mean %s?", guess)
	}
	return "unknown key"
}
