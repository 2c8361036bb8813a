package config

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ConfigVariable names the configuration file where no flag does.
const ConfigVariable = EnvPrefix + "_CONFIG"

// platform matches what container platforms derive from the names of services and ports, after one that is called mirrord
// or mirrord-something.
var platform = regexp.MustCompile(`_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)

// checkEnvironment finds variables that look like keys and are none, for they would be ignored: those that begin with a
// section of the file, and those that are nearly a key. Others are somebody else's, such as secrets that a mirror refers to.
func (l *loader) checkEnvironment(mirrors int) {
	known, sections := variables(mirrors)
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		switch {
		case value == "" || !strings.HasPrefix(name, EnvPrefix+"_") || name == ConfigVariable || slices.Contains(known, name):
		case platform.MatchString(name) || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://"):
		default:
			if text := misspelt(name, known, sections, mirrors); text != "" {
				l.list = append(l.list, Mistake{Env: name, Text: text})
			}
		}
	}
}

// variables lists the variables of all keys, and how those of each section begin.
func variables(mirrors int) (known, sections []string) {
	add := func(prefix string, names []string) {
		for _, name := range names {
			key := joinKey(prefix, name)
			known = append(known, envName(key))
			if top := splitKey(key)[0]; top != key && prefix == "" {
				sections = append(sections, envName(top))
			}
		}
	}
	add("", names(settings()))
	for i := range mirrors {
		add(fmt.Sprintf("mirrors[%d]", i), names(mirrorSettings()))
	}
	return known, append(sections, envName("mirrors"))
}

var ofMirror = regexp.MustCompile(`^` + EnvPrefix + `_MIRRORS_([0-9]+)_`)

// misspelt tells what is wrong with a variable that is no key; empty: it is not meant to be one.
func misspelt(name string, known, sections []string, mirrors int) string {
	if m := ofMirror.FindStringSubmatch(name); m != nil {
		if n, err := strconv.Atoi(m[1]); err != nil || n >= mirrors {
			return fmt.Sprintf("there is no such mirror: mirrors are counted from 0 without a gap, and one that is not in the file needs %s",
				envName(fmt.Sprintf("mirrors[%d].name", mirrors)))
		}
	}
	if near := nearestVariable(name, known); near != "" {
		return fmt.Sprintf("unknown key; did you mean %s?", near)
	}
	for _, section := range sections {
		if name == section || strings.HasPrefix(name, section+"_") {
			return "unknown key"
		}
	}
	return ""
}

// nearestVariable compares what follows the prefix: that all have it makes none more alike.
func nearestVariable(name string, known []string) string {
	const prefix = EnvPrefix + "_"
	rests := make([]string, len(known))
	for i, k := range known {
		rests[i] = strings.TrimPrefix(k, prefix)
	}
	if near := nearest(strings.TrimPrefix(name, prefix), rests); near != "" {
		return prefix + near
	}
	return ""
}
