package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// setting is one key of the table: its name, documentation, place in T and what is legal there. T is Config, or
// mirror.Definition for the keys of a mirror.
type setting[T any] struct {
	name string // dotted, relative to T
	doc  string // one line, for configs/mirrord.yaml and docs/config.md
	kind string // how the value is written
	rule string // what is legal beyond the kind; empty: everything

	set    func(t *T, raw any, in input) error // reads, checks and stores; on error t is unchanged
	format func(t *T) string                   // the value in t as YAML
}

// input says where a raw value comes from.
type input struct {
	env bool   // the environment: always text
	dir string // relative paths are relative to it
}

// kind reads and writes values of one type.
type kind[V any] struct {
	name   string
	parse  func(raw any, in input) (V, error)
	format func(V) string
}

// rule narrows what is legal. The zero value allows everything.
type rule[V any] struct {
	text  string
	check func(V) error
}

// must is a rule that is explained by its own text.
func must[V any](text string, ok func(V) bool) rule[V] {
	return rule[V]{text, func(v V) error {
		if ok(v) {
			return nil
		}
		return errors.New("must be " + text)
	}}
}

// field makes the setting for a place in T. got is added to a broken rule's text, so that nobody has to look it up.
func field[T, V any](name, doc string, k kind[V], at func(*T) *V, r rule[V]) setting[T] {
	return setting[T]{
		name: name, doc: doc, kind: k.name, rule: r.text,
		set: func(t *T, raw any, in input) error {
			if raw == nil {
				return nil
			}
			v, err := k.parse(raw, in)
			if err != nil {
				return err
			}
			if r.check != nil {
				if err := r.check(v); err != nil {
					return withGot(err, k.format(v))
				}
			}
			*at(t) = v
			return nil
		},
		format: func(t *T) string { return k.format(*at(t)) },
	}
}

func withGot(err error, got string) error {
	if strings.HasPrefix(err.Error(), "must be ") {
		return fmt.Errorf("%w, got %s", err, got)
	}
	return err
}

// itemError is a mistake in one item of a list.
type itemError struct {
	index int
	err   error
}

func (e *itemError) Error() string { return e.err.Error() }

// settings lifts the keys of a part S of T into T, below a prefix.
func below[T, S any](prefix string, part func(*T) *S, of []setting[S]) []setting[T] {
	out := make([]setting[T], len(of))
	for i, s := range of {
		out[i] = setting[T]{
			name: prefix + "." + s.name, doc: s.doc, kind: s.kind, rule: s.rule,
			set:    func(t *T, raw any, in input) error { return s.set(part(t), raw, in) },
			format: func(t *T) string { return s.format(part(t)) },
		}
	}
	return out
}

// oneOf allows a fixed set of words.
func oneOf(words ...string) rule[string] {
	return must(strings.Join(words, ", "), func(s string) bool { return slices.Contains(words, s) })
}
