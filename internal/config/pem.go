package config

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
)

// certificates is a file that must hold PEM certificates.
var certificates = pemFile(func(path string, blocks []*pem.Block) error {
	var last error
	for _, b := range blocks {
		if b.Type != "CERTIFICATE" {
			continue
		}
		if _, last = x509.ParseCertificate(b.Bytes); last == nil {
			return nil
		}
	}
	if last != nil {
		return fmt.Errorf("%s: the certificate is damaged: %w", path, last)
	}
	return fmt.Errorf("%s holds no PEM certificate (-----BEGIN CERTIFICATE-----); convert it with openssl x509 (DER), "+
		"openssl pkcs12 (PKCS#12) or keytool -exportcert -rfc (JKS)", path)
})

// privateKey is a file that must hold a PEM key without a password.
var privateKey = pemFile(func(path string, blocks []*pem.Block) error {
	for _, b := range blocks {
		switch {
		case b.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(b.Headers["Proc-Type"], "ENCRYPTED"):
			return fmt.Errorf("%s: the key is encrypted, it must not need a password; decrypt it with openssl pkey", path)
		case strings.HasSuffix(b.Type, "PRIVATE KEY"):
			return nil
		}
	}
	return fmt.Errorf("%s holds no PEM key (-----BEGIN PRIVATE KEY-----); convert it with openssl pkey (DER) or openssl pkcs12 (PKCS#12)", path)
})

func pemFile(check func(path string, blocks []*pem.Block) error) kind[string] {
	return kind[string]{name: "file", format: quote, parse: func(raw any, in input) (string, error) {
		path, err := parseFile(raw, in)
		if err != nil || path == "" {
			return path, err
		}
		return path, checkPEM(path, check)
	}}
}

func checkPEM(path string, check func(string, []*pem.Block) error) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var blocks []*pem.Block
	for {
		var b *pem.Block
		if b, data = pem.Decode(data); b == nil {
			return check(path, blocks)
		}
		blocks = append(blocks, b)
	}
}

// checkPair tells whether a certificate and a key that are each readable belong together. The files may be renewed at any
// time, one after the other, so this holds for the moment of reading only.
func checkPair(certFile, keyFile string) error {
	if certFile == "" || keyFile == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(certFile, keyFile); err != nil {
		return fmt.Errorf("%s and %s: %w", certFile, keyFile, err)
	}
	return nil
}
