package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"mirrord/internal/mirror"
)

// wrongType names what was found where another type is wanted.
func wrongType(want string, raw any) error {
	switch raw.(type) {
	case map[string]any, map[any]any:
		return fmt.Errorf("must be %s, not a mapping", want)
	case []any:
		return fmt.Errorf("must be %s, not a list", want)
	}
	if s, ok := raw.(string); ok {
		return fmt.Errorf("must be %s, got the text %q%s", want, s, inQuotes(s))
	}
	return fmt.Errorf("must be %s, got %v", want, raw)
}

// inQuotes is told of a text that would be none without its quotes.
func inQuotes(s string) string {
	var plain any
	if err := yaml.Unmarshal([]byte(s), &plain); err != nil {
		return ""
	}
	if _, ok := plain.(string); ok || plain == nil {
		return ""
	}
	return " in quotes: leave them out"
}

var text = kind[string]{
	name: "text",
	parse: func(raw any, _ input) (string, error) {
		if s, ok := raw.(string); ok {
			return s, nil
		}
		return "", wrongType("text (put it in quotes)", raw)
	},
	format: quote,
}

// quote writes text so that YAML reads the same text back, in the plain form where that is safe.
func quote(s string) string {
	b, err := yaml.Marshal(s)
	if s == "" || err != nil || strings.Contains(strings.TrimSuffix(string(b), "\n"), "\n") {
		return strconv.Quote(s)
	}
	return strings.ReplaceAll(strings.TrimSuffix(string(b), "\n"), "'", `"`)
}

var texts = kind[[]string]{
	name: "list of text",
	parse: func(raw any, in input) ([]string, error) {
		if s, ok := raw.(string); ok && in.env {
			return envList(s)
		}
		items, ok := raw.([]any)
		if !ok {
			return nil, wrongType("a list like [a, b]", raw)
		}
		out := make([]string, len(items))
		for i, item := range items {
			if out[i], ok = item.(string); !ok {
				return nil, &itemError{i, wrongType("a list of text (put the item in quotes)", item)}
			}
		}
		return out, nil
	},
	format: func(items []string) string {
		quoted := make([]string, len(items))
		for i, item := range items {
			quoted[i] = quote(item)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	},
}

// envList reads a list from the environment: a YAML list, or items separated by commas.
func envList(s string) (items []string, err error) {
	if strings.HasPrefix(s, "[") {
		if err := yaml.Unmarshal([]byte(s), &items); err != nil {
			return nil, fmt.Errorf("must be a list like [a, b]: %w", err)
		}
		return items, nil
	}
	for item := range strings.SplitSeq(s, ",") {
		items = append(items, strings.TrimSpace(item))
	}
	return items, nil
}

type integer interface {
	~int | ~int16 | ~int32 | ~int64
}

func number[V integer]() kind[V] {
	return kind[V]{
		name: "number",
		parse: func(raw any, in input) (V, error) {
			if s, ok := raw.(string); ok && in.env {
				n, err := strconv.Atoi(s)
				if err != nil {
					return 0, fmt.Errorf("must be a whole number, got %s", s)
				}
				raw = n
			}
			n, ok := raw.(int)
			if !ok || int(V(n)) != n {
				return 0, wrongType("a whole number", raw)
			}
			return V(n), nil
		},
		format: func(v V) string { return strconv.FormatInt(int64(v), 10) },
	}
}

var size = kind[int64]{
	name: "size",
	parse: func(raw any, _ input) (int64, error) {
		switch v := raw.(type) {
		case int:
			return int64(v), nil
		case string:
			return ParseSize(v)
		}
		return 0, wrongType("a size like 10MiB", raw)
	},
	format: FormatSize,
}

var duration = kind[time.Duration]{
	name: "duration",
	parse: func(raw any, _ input) (time.Duration, error) {
		if raw == 0 {
			return 0, nil
		}
		s, ok := raw.(string)
		if !ok {
			return 0, fmt.Errorf("must be a duration with a unit, like 30s, got %v", raw)
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			return 0, fmt.Errorf("must be a duration with a unit, like 30s, got %q", s)
		}
		return d, nil
	},
	format: formatDuration,
}

// formatDuration leaves out the zero parts that time.Duration prints: 5m instead of 5m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

var boolean = kind[bool]{
	name: "true or false",
	parse: func(raw any, in input) (bool, error) {
		if s, ok := raw.(string); ok && in.env {
			if raw, ok = map[string]any{"true": true, "false": false}[strings.ToLower(s)]; !ok {
				return false, fmt.Errorf("must be true or false, got %s", s)
			}
		}
		b, ok := raw.(bool)
		if !ok {
			return false, wrongType("true or false", raw)
		}
		return b, nil
	},
	format: strconv.FormatBool,
}

// parseFile reads the path of a file that must exist and be readable.
func parseFile(raw any, in input) (string, error) {
	path, err := parsePath(raw, in)
	if err != nil || path == "" {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return "", fmt.Errorf("%s is not a file", path)
	}
	return path, nil
}

// filledFile is a file that must hold something.
var filledFile = kind[string]{name: "file", parse: parseFilledFile, format: quote}

func parseFilledFile(raw any, in input) (string, error) {
	path, err := parseFile(raw, in)
	if err != nil || path == "" {
		return "", err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return "", fmt.Errorf("%s is empty", path)
	}
	return path, nil
}

// directory is a path that need not exist yet.
var directory = kind[string]{name: "directory", parse: parsePath, format: quote}

func parsePath(raw any, in input) (string, error) {
	path, err := text.parse(raw, in)
	if err != nil || path == "" || filepath.IsAbs(path) {
		return path, err
	}
	return filepath.Join(in.dir, path), nil
}

// secretFile is a file that holds a secret. Only where it lies is kept: the connection reads it each time it dials.
var secretFile = kind[mirror.Secret]{
	name: "file",
	parse: func(raw any, in input) (mirror.Secret, error) {
		path, err := parseFilledFile(raw, in)
		if err != nil || path == "" {
			return "", err
		}
		if strings.ContainsAny(path, ":}") {
			return "", fmt.Errorf("path %s: ':' and '}' are not allowed in the path of a secret", path)
		}
		return mirror.Secret("${file:" + path + "}"), nil
	},
	format: func(s mirror.Secret) string { return quote(string(s)) },
}
