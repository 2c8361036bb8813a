package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/viper"

	"mirrord/internal/mirror"
)

// EnvPrefix begins the environment variables that override keys: destination.bootstrap_servers is
// MIRRORD_DESTINATION_BOOTSTRAP_SERVERS, mirrors[0].name is MIRRORD_MIRRORS_0_NAME.
const EnvPrefix = "MIRRORD"

// Load reads and checks a file; the environment overrides it. The error is *Mistakes, also for a file that cannot be
// read.
func Load(path string) (*Config, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	data, err := os.ReadFile(absolute)
	if err != nil {
		return nil, unreadable(path, err)
	}
	return parse(data, absolute)
}

func unreadable(path string, err error) error {
	if cause, ok := errors.AsType[*os.PathError](err); ok {
		err = cause.Err
	}
	return &Mistakes{File: path, List: []Mistake{{Text: err.Error()}}}
}

// loader carries a file through its checks.
type loader struct {
	collector
	viper *viper.Viper
	dir   string
}

func parse(data []byte, path string) (*Config, error) {
	l := loader{collector: collector{env: map[string]string{}}, viper: viper.New(), dir: filepath.Dir(path)}
	if !parseDocument(data, shapeOf(names(settings()), names(mirrorSettings())), &l.collector) {
		return nil, l.result(filepath.Base(path))
	}
	l.viper.SetEnvPrefix(EnvPrefix)
	l.viper.SetEnvKeyReplacer(strings.NewReplacer(".", "_"))
	l.viper.AutomaticEnv()
	if err := l.viper.MergeConfigMap(l.doc.tree); err != nil {
		return nil, unreadable(path, err)
	}
	cfg := Default()
	cfg.File = path
	fill(&l, "", settings(), &cfg)
	for i := range l.mirrorCount() {
		d := mirror.DefaultDefinition("")
		fill(&l, fmt.Sprintf("mirrors[%d]", i), mirrorSettings(), &d)
		cfg.Mirrors = append(cfg.Mirrors, d)
	}
	l.crossCheck(&cfg)
	l.checkEnvironment(len(cfg.Mirrors))
	if err := l.result(filepath.Base(path)); err != nil {
		return nil, err
	}
	return &cfg, nil
}

func names[T any](of []setting[T]) []string {
	out := make([]string, len(of))
	for i, s := range of {
		out[i] = s.name
	}
	return out
}

// fill sets every key of a table that the file or the environment gives.
func fill[T any](l *loader, prefix string, table []setting[T], into *T) {
	for _, s := range table {
		key := joinKey(prefix, s.name)
		in := input{dir: l.dir}
		if variable := envName(key); os.Getenv(variable) != "" {
			l.env[key], in.env = variable, true
		}
		if l.has(key) && !in.env {
			continue
		}
		l.addItems(key, s.set(into, l.viper.Get(viperKey(key)), in))
	}
}

// addItems notes mistakes of single items at the item's own line.
func (l *loader) addItems(key string, err error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range many.Unwrap() {
			l.addItems(key, one)
		}
		return
	}
	before := len(l.list)
	l.add(key, err)
	if item, ok := errors.AsType[*itemError](err); ok && l.env[key] == "" {
		if line := l.doc.line(fmt.Sprintf("%s[%d]", key, item.index)); line > 0 && len(l.list) > before {
			l.list[before].Line = line
		}
	}
}

// mirrorCount is the number of mirrors in the file, or more where the environment names more.
func (l *loader) mirrorCount() int {
	list, _ := l.doc.tree["mirrors"].([]any)
	n := len(list)
	for os.Getenv(envName(fmt.Sprintf("mirrors[%d].name", n))) != "" {
		n++
	}
	return n
}

// crossCheck finds what is wrong only in combination. A key that is wrong by itself is not looked at again.
func (l *loader) crossCheck(c *Config) {
	l.checkConnection("destination", c.Destination)
	l.check("retry.max_backoff", c.Retry.MaxBackoff >= c.Retry.InitialBackoff, "must be at least retry.initial_backoff")
	l.check("fetch.min_bytes", c.Fetch.MinBytes <= c.Fetch.MaxBytes, "must be at most fetch.max_bytes")
	l.check("fetch.partition_max_bytes", c.Fetch.PartitionMaxBytes <= c.Fetch.MaxBytes, "must be at most fetch.max_bytes")
	l.check("http.tls", (c.HTTP.TLS.CertFile == "") == (c.HTTP.TLS.KeyFile == ""), "needs both cert_file and key_file")
	l.checkPair("http.tls", c.HTTP.TLS.CertFile, c.HTTP.TLS.KeyFile)
	l.check("http.tls.client_ca_file", c.HTTP.TLS.ClientCAFile == "" || c.HTTP.TLS.CertFile != "", "needs cert_file and key_file")
	if !l.has("http.token_file") && !l.has("http.tls") {
		l.check("http.listen", c.HTTP.Loopback() || c.HTTP.TokenFile != "" || c.HTTP.TLS.CertFile != "",
			"an address that other hosts can reach needs http.token_file or http.tls")
	}
	seen := map[string]int{}
	for i, d := range c.Mirrors {
		at := fmt.Sprintf("mirrors[%d]", i)
		l.checkConnection(at+".source", d.Source)
		l.check(at+".name", d.Name != "", "must be given")
		if first, ok := seen[d.Name]; ok && d.Name != "" {
			l.check(at+".name", false, fmt.Sprintf("%q is the name of mirrors[%d] already", d.Name, first))
		}
		seen[d.Name] = i
		l.check(at+".fillers", d.Transactions != mirror.Exact || d.Fillers != mirror.Transactions,
			"transactions cannot fill the holes of a mirror with transactions: exact, which needs markers")
	}
}

func (l *loader) checkConnection(key string, c mirror.Connection) {
	l.check(key+".bootstrap_servers", len(c.BootstrapServers) > 0, "must name at least one host:port")
	if !l.has(key + ".security") {
		l.add(key+".security", CheckSecurity(c.Security))
	}
	l.checkPair(key+".security.tls", c.Security.TLS.CertFile, c.Security.TLS.KeyFile)
}

func (l *loader) checkPair(key, certFile, keyFile string) {
	if !l.has(key) {
		l.add(key, checkPair(certFile, keyFile))
	}
}

func (l *loader) check(key string, ok bool, text string) {
	if !ok && !l.has(key) {
		l.addf(key, "%s", text)
	}
}

func joinKey(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

func splitKey(key string) []string { return strings.Split(key, ".") }

var index = regexp.MustCompile(`\[(\d+)\]`)

// viperKey is how viper spells a key: a list's index is one more part.
func viperKey(key string) string { return index.ReplaceAllString(key, ".$1") }

func envName(key string) string {
	return EnvPrefix + "_" + strings.ToUpper(strings.ReplaceAll(viperKey(key), ".", "_"))
}

// Changed lists the top-level keys whose values differ between two configurations, mirrors apart.
func Changed(a, b *Config) []string {
	var out []string
	for _, s := range settings() {
		if s.format(a) != s.format(b) {
			out = append(out, s.name)
		}
	}
	return out
}

// Effective gives every key outside of mirrors with its value as text, in the order of the shipped file. Secrets are
// shown as the place where they lie.
func (c *Config) Effective() [][2]string {
	var out [][2]string
	for _, s := range settings() {
		out = append(out, [2]string{s.name, s.format(c)})
	}
	return out
}

// MirrorNames lists the declared mirrors.
func (c *Config) MirrorNames() []string {
	out := make([]string, len(c.Mirrors))
	for i, d := range c.Mirrors {
		out[i] = d.Name
	}
	return slices.Clip(out)
}
