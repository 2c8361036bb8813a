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

	"go.yaml.in/yaml/v3"
)

// document is a parsed file: what it holds, and on which line each key stands.
type document struct {
	tree  map[string]any
	lines map[string]int
}

func (d document) line(key string) int { return d.lines[key] }

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
		c.syntax(err)
		return false
	}
	err = decoder.Decode(&second)
	switch {
	case err == nil:
		c.list = append(c.list, Mistake{Line: second.Line, Text: "a second YAML document: one file holds one configuration"})
	case !errors.Is(err, io.EOF):
		c.syntax(err)
	}
	w := walker{c: c}
	w.mapping(node.Content[0], root, "", 0)
	if w.nodes > maxNodes {
		c.list = append(c.list, Mistake{Text: "too many or endless anchors"})
		return false
	}
	if root := resolve(node.Content[0]); root.Kind != yaml.MappingNode {
		return len(c.list) == 0 // null: as good as empty
	}
	if err := node.Decode(&c.doc.tree); err != nil {
		c.syntax(err)
		return false
	}
	return true
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// syntax notes an error of the YAML library, whose text names the line.
func (c *collector) syntax(err error) {
	m := Mistake{Text: err.Error()}
	if found := yamlLine.FindStringSubmatch(m.Text); found != nil {
		m.Line, _ = strconv.Atoi(found[1])
	}
	c.list = append(c.list, m)
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
