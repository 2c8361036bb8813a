package config

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/magiconair/properties"

	"mirrord/internal/mirror"
)

// LoadProperties reads a properties file: a mirror-config, or client properties. Nothing in it is expanded.
func LoadProperties(path string) (map[string]string, error) {
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := loader.LoadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read properties: %w", err)
	}
	settings := make(map[string]string, p.Len())
	for _, key := range p.Keys() {
		settings[key] = strings.TrimSpace(p.GetString(key, ""))
	}
	return settings, nil
}

// ApplyProperties changes the settings of d that the properties name, by Kafka's names for the connection and the dotted
// keys of the file for everything else. The keys of security.protocol, sasl.* and ssl.* are taken together: one of them
// given, those not given go back to their defaults. All mistakes are reported at once, one per line, and none of them
// quotes a secret. Values may be references; secrets must be. resolve reads those of other values and runs on the
// daemon's host only: without it they are left unchecked.
func ApplyProperties(d mirror.Definition, settings map[string]string, resolve func(mirror.Secret) (string, error)) (mirror.Definition, error) {
	p := applying{definition: d, file: input{env: true}, resolve: resolve}
	if slices.ContainsFunc(slices.Collect(maps.Keys(settings)), isSecurityKey) {
		p.definition.Source.Security = mirror.Security{}
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		p.note(key, p.apply(key, settings[key]))
	}
	if len(p.mistakes) == 0 && !p.unresolved {
		p.checkTogether()
	}
	return p.definition, errors.Join(p.mistakes...)
}

func isSecurityKey(key string) bool {
	return key == "security.protocol" || strings.HasPrefix(key, "sasl.") || strings.HasPrefix(key, "ssl.")
}

// applying carries a definition through the settings that change it.
type applying struct {
	definition mirror.Definition
	file       input
	resolve    func(mirror.Secret) (string, error)
	unresolved bool                             // a value is known on the daemon's host only
	literals   func(value string) mirror.Secret // takes literal secrets; nil: they are refused
	mistakes   []error
}

func (p *applying) note(key string, err error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range many.Unwrap() {
			p.note(key, one)
		}
		return
	}
	if err != nil {
		p.mistakes = append(p.mistakes, fmt.Errorf("%s: %w", key, err))
	}
}

var reference = regexp.MustCompile(`^\$\{(file:/[^}]+|env:[A-Za-z_][A-Za-z0-9_]*)\}$`)

func (p *applying) apply(key, value string) error {
	if set, ok := p.connectionKeys()[key]; ok {
		if reference.MatchString(value) && !secretKeys[key] {
			return p.applyReference(key, value)
		}
		return set(value)
	}
	if s, ok := mirrorKeys()[key]; ok {
		if reference.MatchString(value) {
			return p.applyReference(key, value)
		}
		return setText(s, &p.definition, value, p.file)
	}
	return unknownProperty(key)
}

func (p *applying) applyReference(key, value string) error {
	if p.resolve == nil {
		p.unresolved = true
		return nil
	}
	plain, err := p.resolve(mirror.Secret(value))
	if err != nil {
		return err
	}
	if reference.MatchString(plain) {
		return errors.New("a reference must not lead to another one")
	}
	return p.apply(key, plain)
}

func unknownProperty(key string) error {
	known := slices.Collect(maps.Keys(mirrorKeys()))
	known = slices.AppendSeq(known, maps.Keys((&applying{}).connectionKeys()))
	slices.Sort(known)
	if near := nearest(key, known); near != "" {
		return fmt.Errorf("unknown key; did you mean %s?", near)
	}
	return errors.New("unknown key")
}

// mirrorKeys are the keys of a mirror that have nothing to do with its connection, in dotted form.
func mirrorKeys() map[string]setting[mirror.Definition] {
	keys := map[string]setting[mirror.Definition]{}
	for _, s := range mirrorSettings() {
		switch {
		case s.name == "name" || strings.HasPrefix(s.name, "source.") && s.name != "source.cluster_id":
		default:
			keys[strings.ReplaceAll(s.name, "_", ".")] = s
		}
	}
	return keys
}

// setText gives a setting the text of a property. Lists are separated by commas, except inside of {} and [], where a
// pattern may need them.
func setText(s setting[mirror.Definition], d *mirror.Definition, value string, in input) error {
	if s.kind != texts.name {
		return s.set(d, value, in)
	}
	items := []any{}
	for _, item := range SplitList(value) {
		items = append(items, item)
	}
	return s.set(d, items, in)
}

// SplitList splits a list at its commas, except inside of {} and [], and drops empty items and outer white space.
func SplitList(s string) (items []string) {
	depth, from := 0, 0
	add := func(to int) {
		if item := strings.TrimSpace(s[from:to]); item != "" {
			items = append(items, item)
		}
		from = to + 1
	}
	for i := range len(s) {
		switch s[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth = max(0, depth-1)
		case ',':
			if depth == 0 {
				add(i)
			}
		}
	}
	add(len(s))
	return items
}

func (p *applying) checkTogether() {
	d := &p.definition
	if len(d.Source.BootstrapServers) == 0 {
		p.note("bootstrap.servers", errors.New("must name at least one host:port"))
	}
	p.note("security.protocol", CheckSecurity(d.Source.Security))
	if d.Transactions == mirror.Exact && d.Fillers == mirror.Transactions {
		p.note("fillers", errors.New("transactions cannot fill the holes of a mirror with transactions=exact, which needs markers"))
	}
}

func absolute(path string) error {
	if path == "" || filepath.IsAbs(path) {
		return nil
	}
	return fmt.Errorf("path %q must be absolute, for it is read on the daemon's host", path)
}
