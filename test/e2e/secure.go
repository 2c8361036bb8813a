package e2e

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Authority issues certificates for a test, as PEM files.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority; its own certificate is the file CA.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{dir: t.TempDir(), key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	must(t, err)
	a.cert, err = x509.ParseCertificate(der)
	must(t, err)
	writePEM(t, a.CA(), &pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

func writePEM(t testing.TB, file string, blocks ...*pem.Block) {
	t.Helper()
	var b []byte
	for _, block := range blocks {
		b = append(b, pem.EncodeToMemory(block)...)
	}
	must(t, os.WriteFile(file, b, 0o600))
}

// CA is the file with the authority's certificate.
func (a *Authority) CA() string { return filepath.Join(a.dir, "ca.pem") }

// Issue writes a certificate for a name and this host, its key, and both in one file as brokers read them. Issuing again
// replaces the files.
func (a *Authority) Issue(t testing.TB, name string) (cert, key, both string) {
	t.Helper()
	return a.IssueFor(t, name, 12*time.Hour)
}

// IssueFor is Issue with a certificate that is good for so long.
func (a *Authority) IssueFor(t testing.TB, name string, life time.Duration) (cert, key, both string) {
	t.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	must(t, err)
	private := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(life), KeyUsage: x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	must(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	must(t, err)
	base := filepath.Join(a.dir, name)
	certBlock, keyBlock := &pem.Block{Type: "CERTIFICATE", Bytes: der}, &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}
	writePEM(t, base+".pem", certBlock)
	writePEM(t, base+".key", keyBlock)
	writePEM(t, base+".both.pem", keyBlock, certBlock)
	return base + ".pem", base + ".key", base + ".both.pem"
}

// TokenServer gives out signed tokens for the client credentials grant.
type TokenServer struct {
	URL, JWKS string // JWKS: the URL of a file with the public key
	Asked     atomic.Int64
	key       *rsa.PrivateKey
	secret    atomic.Pointer[string]
	life      time.Duration
}

// NewTokenServer begins to serve tokens that are good for so long, to any client that knows the secret.
func NewTokenServer(t testing.TB, secret string, life time.Duration) *TokenServer {
	t.Helper()
	s := &TokenServer{life: life}
	s.secret.Store(&secret)
	var err error
	s.key, err = rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	b64 := base64.RawURLEncoding.EncodeToString
	jwks, err := json.Marshal(map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "kid": "test", "alg": "RS256", "use": "sig",
		"n": b64(s.key.N.Bytes()), "e": b64(big.NewInt(int64(s.key.E)).Bytes()),
	}}})
	must(t, err)
	file := filepath.Join(t.TempDir(), "jwks.json")
	must(t, os.WriteFile(file, jwks, 0o644))
	s.JWKS = "file://" + file
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.URL = server.URL + "/token"
	return s
}

// ServeHTTP answers a request for a token.
func (s *TokenServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	client, secret, basic := r.BasicAuth()
	if !basic {
		client, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	w.Header().Set("Content-Type", "application/json")
	if r.FormValue("grant_type") != "client_credentials" || secret != *s.secret.Load() {
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":"invalid_client","error_description":"secret %s of %s is wrong"}`, secret, client)
		return
	}
	s.Asked.Add(1)
	now := time.Now()
	token := s.sign(map[string]any{"sub": client, "scope": r.FormValue("scope"), "iat": now.Unix(), "exp": now.Add(s.life).Unix(), "jti": fmt.Sprint(now.UnixNano())})
	fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, token, int(s.life.Seconds()))
}

func (s *TokenServer) sign(claims map[string]any) string {
	b64 := base64.RawURLEncoding.EncodeToString
	header, _ := json.Marshal(map[string]string{"alg": "RS256", "typ": "JWT", "kid": "test"})
	body, _ := json.Marshal(claims)
	signed := b64(header) + "." + b64(body)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, s.key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err)
	}
	return signed + "." + b64(signature)
}

// secured are the properties of nodes whose proxied listener demands TLS: with a client certificate, or with a login by
// any of the mechanisms. Who comes to the direct listener is the tests' own client and a super user.
func secured(a *Authority, t testing.TB, name string, tokens *TokenServer) Options {
	t.Helper()
	_, _, both := a.Issue(t, name)
	props := map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users": "User:ANONYMOUS",
		"auto.create.topics.enable":                             "false",
		"listener.name.proxied.ssl.keystore.type":               "PEM",
		"listener.name.proxied.ssl.keystore.location":           both,
		"listener.name.proxied.ssl.truststore.type":             "PEM",
		"listener.name.proxied.ssl.truststore.location":         a.CA(),
		"listener.name.proxied.ssl.client.auth":                 "required",
		"listener.security.protocol.map":                        "DIRECT:PLAINTEXT,PROXIED:SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"connection.failed.authentication.delay.ms":             "50",
		"listener.name.proxied.plain.connections.max.reauth.ms": "5000",
	}
	if tokens == nil {
		return Options{Props: props}
	}
	login := func(class string) string { return "org.apache.kafka.common.security." + class + " required" }
	for key, value := range map[string]string{
		"listener.security.protocol.map":                                        "DIRECT:PLAINTEXT,PROXIED:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"sasl.enabled.mechanisms":                                               "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
		"listener.name.proxied.ssl.client.auth":                                 "none",
		"listener.name.proxied.plain.sasl.jaas.config":                          login("plain.PlainLoginModule") + ` user_PLAIN="` + password("PLAIN") + `";`,
		"listener.name.proxied.scram-sha-256.sasl.jaas.config":                  login("scram.ScramLoginModule") + ";",
		"listener.name.proxied.scram-sha-512.sasl.jaas.config":                  login("scram.ScramLoginModule") + ";",
		"listener.name.proxied.oauthbearer.sasl.jaas.config":                    login("oauthbearer.OAuthBearerLoginModule") + ";",
		"listener.name.proxied.oauthbearer.sasl.server.callback.handler.class":  "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
		"listener.name.proxied.oauthbearer.sasl.oauthbearer.jwks.endpoint.url":  tokens.JWKS,
		"listener.name.proxied.oauthbearer.sasl.oauthbearer.sub.claim.name":     "sub",
		"listener.name.proxied.oauthbearer.connections.max.reauth.ms":           "60000",
		"listener.name.proxied.oauthbearer.sasl.oauthbearer.clock.skew.seconds": "1",
		"listener.name.proxied.oauthbearer.sasl.oauthbearer.scope.claim.name":   "scope",
	} {
		props[key] = value
	}
	return Options{Props: props}
}

// password is the one of a user, who is named after his mechanism.
func password(user string) string { return "secret-of-" + strings.ToLower(user) }
