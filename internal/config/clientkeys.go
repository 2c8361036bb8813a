package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mirrord/internal/mirror"
)

// secretKeys hold secrets, so their values are references that are kept as they are.
var secretKeys = map[string]bool{
	"sasl.password": true, "sasl.jaas.config": true,
	"sasl.oauthbearer.client.credentials.client.secret": true,
}

// connectionKeys are Kafka's names for what a connection needs, those of the Java clients and those of librdkafka.
func (p *applying) connectionKeys() map[string]func(string) error {
	c := &p.definition.Source
	sec := &c.Security
	return map[string]func(string) error{
		"bootstrap.servers": func(v string) error {
			c.BootstrapServers = SplitList(v)
			return checkAddresses(c.BootstrapServers)
		},
		"security.protocol": func(v string) error {
			sec.Protocol = strings.ToUpper(v)
			return oneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL").check(sec.Protocol)
		},
		"sasl.mechanism": func(v string) error {
			sec.SASL.Mechanism = v
			return oneOf("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", oauthBearer).check(v)
		},
		"sasl.username":                                     textInto(&sec.SASL.Username, nil),
		"sasl.password":                                     p.secretInto(&sec.SASL.Password),
		"sasl.jaas.config":                                  p.jaas,
		"sasl.oauthbearer.token.endpoint.url":               textInto(&sec.SASL.TokenEndpoint, checkURL),
		"sasl.oauthbearer.client.credentials.client.id":     textInto(&sec.SASL.ClientID, nil),
		"sasl.oauthbearer.client.credentials.client.secret": p.secretInto(&sec.SASL.ClientSecret),
		"sasl.oauthbearer.scope":                            textInto(&sec.SASL.Scope, nil),
		"ssl.truststore.location":                           p.fileInto(&sec.TLS.CAFile),
		"ssl.ca.location":                                   p.fileInto(&sec.TLS.CAFile),
		"ssl.truststore.type":                               onlyPEM,
		"ssl.keystore.type":                                 onlyPEM,
		"ssl.keystore.location":                             p.fileInto(&sec.TLS.CertFile, &sec.TLS.KeyFile),
		"ssl.certificate.location":                          p.fileInto(&sec.TLS.CertFile),
		"ssl.key.location":                                  p.fileInto(&sec.TLS.KeyFile),
		"ssl.endpoint.identification.algorithm": func(v string) error {
			sec.TLS.SkipHostname = v == ""
			return oneOf("", "https").check(strings.ToLower(v))
		},
		"ssl.key.password":        noPassword,
		"ssl.keystore.password":   noPassword,
		"ssl.truststore.password": noPassword,
	}
}

func textInto(at *string, check func(string) error) func(string) error {
	return func(v string) error {
		*at = v
		if check == nil {
			return nil
		}
		return check(v)
	}
}

func (p *applying) fileInto(at ...*string) func(string) error {
	return func(v string) error {
		if p.literals != nil { // a file of this host
			v, _ = filepath.Abs(v)
		}
		for _, one := range at {
			*one = v
		}
		return absolute(v)
	}
}

func onlyPEM(v string) error {
	if strings.EqualFold(v, "PEM") {
		return nil
	}
	return fmt.Errorf("must be PEM, got %s", v)
}

func noPassword(string) error { return errors.New("not supported: PEM files must not need a password") }

func (p *applying) secretInto(at *mirror.Secret) func(string) error {
	return func(v string) (err error) {
		*at, err = p.secret(v)
		return err
	}
}

// secret takes a reference. A literal would end up in a topic.
func (p *applying) secret(v string) (mirror.Secret, error) {
	switch {
	case v == "" || reference.MatchString(v):
		return mirror.Secret(v), nil
	case p.literals != nil:
		return p.literals(v), nil
	case strings.HasPrefix(v, "${"):
		return "", errors.New("a reference must be ${file:/PATH}, ${file:/PATH:KEY} or ${env:NAME}")
	}
	return "", errors.New("a literal secret would be stored in a topic: write ${file:/PATH}, ${file:/PATH:KEY} or ${env:NAME}")
}

var jaasOption = regexp.MustCompile(`(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|'[^']*'|[^\s;]+)`)

// jaas reads the login out of Java's form: a module and its options.
func (p *applying) jaas(v string) error {
	if reference.MatchString(v) {
		return errors.New(`a reference to the whole is not supported: write it out, with password="${file:/PATH}"`)
	}
	if !strings.Contains(v, "LoginModule") {
		return errors.New("must be the login module's class, required, its options and a semicolon")
	}
	sasl := &p.definition.Source.Security.SASL
	var errs []error
	for _, option := range jaasOption.FindAllStringSubmatch(v, -1) {
		value := strings.Trim(option[2], `'`)
		if unescaped, err := strconv.Unquote(option[2]); err == nil {
			value = unescaped
		}
		var err error
		switch option[1] {
		case "username":
			sasl.Username = value
		case "password":
			sasl.Password, err = p.secret(value)
		case "clientId":
			sasl.ClientID = value
		case "clientSecret":
			sasl.ClientSecret, err = p.secret(value)
		case "scope":
			sasl.Scope = value
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", option[1], err))
		}
	}
	return errors.Join(errs...)
}

// LoadClientSecurity reads the Kafka client properties of --command-config. Keys that have nothing to do with the
// connection are ignored, as every Kafka tool does. Literal secrets are allowed, since the file stays on this host;
// they are passed on through this process's environment.
func LoadClientSecurity(path string) (mirror.Security, error) {
	settings, err := LoadProperties(path)
	if err != nil {
		return mirror.Security{}, err
	}
	p := applying{literals: hide}
	keys := p.connectionKeys()
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if set, ok := keys[key]; ok && isSecurityKey(key) {
			p.note(key, set(settings[key]))
		}
	}
	if len(p.mistakes) == 0 {
		p.note("security.protocol", CheckSecurity(p.definition.Source.Security))
		p.checkFiles()
	}
	if len(p.mistakes) > 0 {
		return mirror.Security{}, fmt.Errorf("%s: %w", path, errors.Join(p.mistakes...))
	}
	return p.definition.Source.Security, nil
}

// checkFiles looks into the PEM files of a connection that this host makes.
func (p *applying) checkFiles() {
	tls := p.definition.Source.Security.TLS
	before := len(p.mistakes)
	for _, f := range []struct {
		key, path string
		kind      kind[string]
	}{
		{"ssl.truststore.location", tls.CAFile, certificates},
		{"ssl.keystore.location", tls.CertFile, certificates},
		{"ssl.keystore.location", tls.KeyFile, privateKey},
	} {
		_, err := f.kind.parse(f.path, p.file)
		p.note(f.key, err)
	}
	if len(p.mistakes) == before {
		p.note("ssl.keystore.location", checkPair(tls.CertFile, tls.KeyFile))
	}
}

// hide puts a literal secret where a reference can find it.
func hide(value string) mirror.Secret {
	for n := 0; ; n++ {
		name := "MIRRORD_COMMAND_SECRET_" + strconv.Itoa(n)
		if old, taken := os.LookupEnv(name); taken && old != value {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return "" // a value with a NUL byte, which is no secret of anybody
		}
		return mirror.Secret("${env:" + name + "}")
	}
}
