package kafka

import (
	"fmt"
	"os"
	"strings"

	"github.com/magiconair/properties"

	"mirrord/internal/mirror"
)

// resolve reads the secret that a reference names, and refuses one that is empty: it would be sent, and be refused without
// its file being named. Neither the result nor a part of it is ever in an error.
func resolve(ref mirror.Secret) (string, error) {
	if ref == "" {
		return "", nil
	}
	value, err := lookup(ref)
	if err == nil && value == "" {
		return "", fmt.Errorf("resolve secret: %s is empty", ref)
	}
	return value, err
}

func lookup(ref mirror.Secret) (string, error) {
	body, ok := strings.CutPrefix(string(ref), "${")
	body, closed := strings.CutSuffix(body, "}")
	provider, name, named := strings.Cut(body, ":")
	if !ok || !closed || !named || name == "" {
		return "", fmt.Errorf("resolve secret: not of the form ${file:PATH}, ${file:PATH:KEY} or ${env:NAME}")
	}
	switch provider {
	case "env":
		return envSecret(name)
	case "file":
		path, key := splitKey(name)
		return fileSecret(path, key)
	}
	return "", fmt.Errorf("resolve secret: unknown provider %q, only file and env are known", provider)
}

// splitKey separates the key from a path; colons inside the path stay there.
func splitKey(name string) (path, key string) {
	i := strings.LastIndexByte(name, ':')
	if i < 0 || strings.ContainsRune(name[i:], os.PathSeparator) {
		return name, ""
	}
	return name[:i], name[i+1:]
}

func envSecret(name string) (string, error) {
	value, ok := os.LookupEnv(name)
	if !ok {
		return "", fmt.Errorf("resolve secret: environment variable %s is not set", name)
	}
	return value, nil
}

// fileSecret reads a whole file, without its last line break, or one key of a properties file.
func fileSecret(path, key string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("resolve secret: %w", err)
	}
	if key == "" {
		return strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r"), nil
	}
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	props, err := loader.LoadBytes(b)
	if err != nil { // its text may quote the file
		return "", fmt.Errorf("resolve secret: %s is not a properties file", path)
	}
	value, ok := props.Get(key)
	if !ok {
		return "", fmt.Errorf("resolve secret: %s has no key %q", path, key)
	}
	return value, nil
}
