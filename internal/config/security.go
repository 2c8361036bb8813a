package config

import (
	"errors"
	"fmt"
	"strings"

	"mirrord/internal/mirror"
)

// Protocols and mechanisms that a connection may use.
const (
	saslPrefix  = "SASL_"
	sslSuffix   = "SSL"
	oauthBearer = "OAUTHBEARER"
)

func securitySettings() []setting[mirror.Security] {
	type sec = mirror.Security
	none := rule[string]{}
	return []setting[sec]{
		field("protocol", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; empty: PLAINTEXT", text,
			func(s *sec) *string { return &s.Protocol }, oneOfOrEmpty("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
		field("sasl.mechanism", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER", text,
			func(s *sec) *string { return &s.SASL.Mechanism }, oneOfOrEmpty("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", oauthBearer)),
		field("sasl.username", "of PLAIN and SCRAM", text, func(s *sec) *string { return &s.SASL.Username }, none),
		field("sasl.password_file", "file that holds the password, read at each connection", secretFile,
			func(s *sec) *mirror.Secret { return &s.SASL.Password }, rule[mirror.Secret]{}),
		field("sasl.token_endpoint", "of OAUTHBEARER: URL of the client credentials grant", text,
			func(s *sec) *string { return &s.SASL.TokenEndpoint }, rule[string]{"a URL", checkURL}),
		field("sasl.client_id", "of OAUTHBEARER", text, func(s *sec) *string { return &s.SASL.ClientID }, none),
		field("sasl.client_secret_file", "of OAUTHBEARER: file that holds the secret", secretFile,
			func(s *sec) *mirror.Secret { return &s.SASL.ClientSecret }, rule[mirror.Secret]{}),
		field("sasl.scope", "of OAUTHBEARER: scope to ask for", text, func(s *sec) *string { return &s.SASL.Scope }, none),
		field("tls.ca_file", "PEM file of trusted CAs; empty: the system's", certificates, func(s *sec) *string { return &s.TLS.CAFile }, none),
		field("tls.cert_file", "PEM client certificate, read at each connection", certificates, func(s *sec) *string { return &s.TLS.CertFile }, none),
		field("tls.key_file", "PEM key of it", privateKey, func(s *sec) *string { return &s.TLS.KeyFile }, none),
		field("tls.server_name", "name that the brokers' certificates must bear; empty: the host dialled", text,
			func(s *sec) *string { return &s.TLS.ServerName }, none),
		field("tls.skip_hostname", "true: any name will do (ssl.endpoint.identification.algorithm empty)", boolean,
			func(s *sec) *bool { return &s.TLS.SkipHostname }, rule[bool]{}),
	}
}

func oneOfOrEmpty(words ...string) rule[string] {
	r := oneOf(words...)
	check := r.check
	r.check = func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
	return r
}

func checkURL(s string) error {
	if s == "" || strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://") {
		return nil
	}
	return fmt.Errorf("%q is not an http(s) URL", s)
}

// CheckSecurity tells what in s does not fit together. The texts name no key: the caller knows how it spells them.
func CheckSecurity(s mirror.Security) error {
	sasl, tls := strings.HasPrefix(s.Protocol, saslPrefix), strings.HasSuffix(s.Protocol, sslSuffix)
	return errors.Join(
		when(!sasl && s.SASL != mirror.SASL{}, "a SASL login is given, but the protocol is %s", protocolName(s)),
		when(!tls && s.TLS != mirror.TLS{}, "TLS files are given, but the protocol is %s", protocolName(s)),
		when((s.TLS.CertFile == "") != (s.TLS.KeyFile == ""), "a client certificate needs both its file and its key's"),
		when(sasl && s.SASL.Mechanism == "", "protocol %s needs a SASL mechanism", s.Protocol),
		when(sasl && s.SASL.Mechanism == oauthBearer && (s.SASL.TokenEndpoint == "" || s.SASL.ClientID == "" || s.SASL.ClientSecret == ""),
			"OAUTHBEARER needs a token endpoint, a client id and a client secret"),
		when(sasl && s.SASL.Mechanism != "" && s.SASL.Mechanism != oauthBearer && (s.SASL.Username == "" || s.SASL.Password == ""),
			"%s needs a user name and a password", s.SASL.Mechanism),
	)
}

func protocolName(s mirror.Security) string {
	if s.Protocol == "" {
		return "PLAINTEXT"
	}
	return s.Protocol
}

func when(wrong bool, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return fmt.Errorf(format, args...)
}
