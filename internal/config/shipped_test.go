package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"mirrord/internal/mirror"
)

const shipped = "../../configs/mirrord.yaml"

// shippedTree reads the shipped file as "key" → "value as the table writes it".
func shippedTree(t *testing.T) (values map[string]string, comments map[string]bool) {
	t.Helper()
	data, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	values, comments = map[string]string{}, map[string]bool{}
	flatten(root.Content[0], "", values, comments)
	return values, comments
}

func flatten(n *yaml.Node, key string, values map[string]string, comments map[string]bool) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		full := joinKey(key, k.Value)
		switch {
		case v.Kind == yaml.MappingNode:
			flatten(v, full, values, comments)
		case v.Kind == yaml.SequenceNode && len(v.Content) > 0 && v.Content[0].Kind == yaml.MappingNode:
			flatten(v.Content[0], full+"[0]", values, comments)
		case v.Kind == yaml.SequenceNode:
			var items []string
			for _, item := range v.Content {
				items = append(items, item.Value)
			}
			values[full] = texts.format(items)
		case v.Tag == "!!str":
			values[full] = quote(v.Value)
		default:
			values[full] = v.Value
		}
		comments[full] = k.HeadComment != "" || k.LineComment != "" || v.LineComment != ""
	}
}

// examples are the keys that have no default, as the shipped file shows them.
var examples = map[string]string{
	"destination.bootstrap_servers":       `["localhost:9094"]`,
	"mirrors[0].name":                     "east",
	"mirrors[0].source.bootstrap_servers": `["localhost:9092"]`,
}

func TestShippedFileSpellsEveryDefault(t *testing.T) {
	values, comments := shippedTree(t)
	cfg, d := Default(), mirror.DefaultDefinition("")
	compare(t, "", settings(), &cfg, values, comments)
	compare(t, "mirrors[0]", mirrorSettings(), &d, values, comments)
	for key := range values {
		t.Errorf("%s is in the shipped file, but no key", key)
	}
}

func compare[T any](t *testing.T, prefix string, table []setting[T], defaults *T, values map[string]string, comments map[string]bool) {
	t.Helper()
	for _, s := range table {
		key := joinKey(prefix, s.name)
		want := s.format(defaults)
		if example, ok := examples[key]; ok {
			want = strings.ReplaceAll(example, `"`, "")
		}
		switch got, ok := values[key]; {
		case !ok:
			t.Errorf("%s is missing in the shipped file", key)
		case strings.ReplaceAll(got, `"`, "") != strings.ReplaceAll(want, `"`, ""):
			t.Errorf("%s: shipped %s, default %s", key, got, want)
		case !comments[key]:
			t.Errorf("%s has no comment", key)
		}
		delete(values, key)
	}
}

func TestShippedFilesLoad(t *testing.T) {
	for _, name := range []string{"mirrord.yaml", "minimal.yaml"} {
		if _, err := Load("../../configs/" + name); err != nil {
			t.Error(err)
		}
	}
}

func TestSecureFileLoadsOnceItsFilesExist(t *testing.T) {
	dir := t.TempDir()
	data, err := os.ReadFile("../../configs/secure.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("secure.yaml", data)
	write("destination.password", []byte("x"))
	write("http.token", []byte("x"))
	for name, like := range map[string]string{
		"ca.pem": "ca.pem", "http.pem": "cert.pem", "http.key": "key.pem", "east-client.pem": "cert.pem", "east-client.key": "key.pem",
	} {
		data, err := os.ReadFile("testdata/good/" + like)
		if err != nil {
			t.Fatal(err)
		}
		write(name, data)
	}
	if _, err := Load(filepath.Join(dir, "secure.yaml")); err != nil {
		t.Error(err)
	}
}

func TestReferenceIsCurrent(t *testing.T) {
	const path = "../../docs/config.md"
	if *update {
		if err := os.WriteFile(path, []byte(Reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(data) != Reference() {
		t.Errorf("docs/config.md is not what the table says: run go test ./internal/config -update")
	}
}

// Printed for whoever adds a key: the lines that the shipped file needs.
func Example_shippedLine() {
	cfg := Default()
	s := settings()[0]
	fmt.Println(s.name, s.format(&cfg))
	// Output: destination.bootstrap_servers []
}
