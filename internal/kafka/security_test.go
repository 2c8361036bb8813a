package kafka

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
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

	"github.com/twmb/franz-go/pkg/kfake"

	"mirrord/internal/mirror"
)

// testCerts is an authority with files in a directory.
type testCerts struct {
	dir, caFile string
	ca          *x509.Certificate
	key         *ecdsa.PrivateKey
}

func makeCerts(t *testing.T) *testCerts {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	c := &testCerts{dir: t.TempDir(), ca: ca, key: key}
	c.caFile = c.write(t, "ca.pem", "CERTIFICATE", der)
	return c
}

func (c *testCerts) write(t *testing.T, name, kind string, der []byte) string {
	t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// issue writes name.pem and name.key for an address.
func (c *testCerts) issue(t *testing.T, name string, hosts ...string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			tmpl.IPAddresses = append(tmpl.IPAddresses, ip)
		} else {
			tmpl.DNSNames = append(tmpl.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, c.ca, &key.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return c.write(t, name+".pem", "CERTIFICATE", der), c.write(t, name+".key", "EC PRIVATE KEY", raw)
}

func (c *testCerts) server(t *testing.T, hosts ...string) *tls.Config {
	t.Helper()
	if hosts == nil {
		hosts = []string{"127.0.0.1", "localhost"}
	}
	pair, err := tls.LoadX509KeyPair(c.issue(t, "server", hosts...))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}
}

func (c *testCerts) requireClients(t *testing.T) *tls.Config {
	cfg := c.server(t)
	cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	cfg.ClientCAs.AddCert(c.ca)
	return cfg
}

func reach(t *testing.T, fake *kfake.Cluster, s mirror.Security) error {
	t.Helper()
	c := openCluster(t, Config{Connection: mirror.Connection{BootstrapServers: fake.ListenAddrs(), Security: s}})
	ctx, cancel := context.WithTimeout(testContext(t), 1500*time.Millisecond)
	defer cancel()
	_, err := c.ID(ctx)
	return err
}

func TestTLS(t *testing.T) {
	certs, stranger := makeCerts(t), makeCerts(t)
	fake := startFake(t, kfake.TLS(certs.server(t)))
	other := startFake(t, kfake.TLS(certs.server(t, "elsewhere")))
	for _, tt := range []struct {
		name string
		fake *kfake.Cluster
		tls  mirror.TLS
		ok   bool
	}{
		{"right authority", fake, mirror.TLS{CAFile: certs.caFile}, true},
		{"wrong authority", fake, mirror.TLS{CAFile: stranger.caFile}, false},
		{"authority of the system", fake, mirror.TLS{}, false},
		{"authority file missing", fake, mirror.TLS{CAFile: filepath.Join(certs.dir, "none")}, false},
		{"certificate for another host", other, mirror.TLS{CAFile: certs.caFile}, false},
		{"server name given", other, mirror.TLS{CAFile: certs.caFile, ServerName: "elsewhere"}, true},
		{"host name not checked", other, mirror.TLS{CAFile: certs.caFile, SkipHostname: true}, true},
		{"host name not checked, wrong authority", other, mirror.TLS{CAFile: stranger.caFile, SkipHostname: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := reach(t, tt.fake, mirror.Security{Protocol: "SSL", TLS: tt.tls})
			if (err == nil) != tt.ok {
				t.Errorf("err = %v", err)
			}
			if err != nil && mirror.KindOf(err) != mirror.Unreachable {
				t.Errorf("kind %v of %v", mirror.KindOf(err), err)
			}
		})
	}
}

// A renewal writes two files; in between they do not match. That may only delay.
// TestTheWrongProtocolIsTold: both sides of a connection that disagree about TLS see nothing but its end, and a client tries
// that again and again. What it may mean is told with the end of the wait.
func TestTheWrongProtocolIsTold(t *testing.T) {
	certs := makeCerts(t)
	cert, key := certs.issue(t, "broker", "127.0.0.1")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	encrypted, plain := startFake(t, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{pair}})), startFake(t)
	for _, tt := range []struct {
		name, address, protocol, want string
	}{
		{"TLS to a plain listener", plain.ListenAddrs()[0], "SSL", "TLS could not begin: the listener may not speak it"},
		{"plain to a listener of TLS", encrypted.ListenAddrs()[0], "", "the listener may want TLS"},
		{"plain to a listener that answers by an alert", alerting(t), "", "the listener speaks TLS: set security.protocol"},
		{"nobody speaks", silentListener(t), "", "i/o timeout"},
	} {
		c := openCluster(t, Config{
			Connection:  mirror.Connection{BootstrapServers: []string{tt.address}, Security: mirror.Security{Protocol: tt.protocol}},
			DialTimeout: 300 * time.Millisecond, RequestTimeout: 10 * time.Second,
		})
		ctx, cancel := context.WithTimeoutCause(testContext(t), 2*time.Second, errors.New("no answer within 2 s"))
		_, err := c.ID(ctx)
		cancel()
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.address) || strings.Contains(err.Error(), "context") {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
		if strings.Count(err.Error(), tt.want) > 1 {
			t.Errorf("%s: said twice: %v", tt.name, err)
		}
		if mirror.KindOf(err) != mirror.Unreachable {
			t.Errorf("%s: kind %v", tt.name, mirror.KindOf(err))
		}
	}
}

// TestAnEmptySecretNamesItsPlace: the broker would refuse it without a word about where it came from.
func TestAnEmptySecretNamesItsPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("EMPTY_SECRET", "")
	for _, ref := range []string{"${file:" + file + "}", "${env:EMPTY_SECRET}"} {
		if _, err := resolve(mirror.Secret(ref)); err == nil || !strings.Contains(err.Error(), ref+" is empty") {
			t.Errorf("%s: got %v", ref, err)
		}
	}
}

// alerting is a listener that answers everything like Java's TLS answers what is none.
func alerting(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1024))
			_, _ = conn.Write([]byte{0x15, 3, 3, 0, 2, 2, 80})
			conn.Close()
		}
	}()
	return ln.Addr().String()
}

func TestRenewedClientCertificateNeedsNoRestart(t *testing.T) {
	certs := makeCerts(t)
	fake := startFake(t, kfake.TLS(certs.requireClients(t)))
	certFile, keyFile := certs.issue(t, "client")
	old, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	c := openCluster(t, Config{Connection: mirror.Connection{BootstrapServers: fake.ListenAddrs(), Security: mirror.Security{
		Protocol: "SSL", TLS: mirror.TLS{CAFile: certs.caFile, CertFile: certFile, KeyFile: keyFile},
	}}})
	ctx := testContext(t)
	m, err := c.Metadata(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var broker int32
	for broker = range m.Brokers {
	}
	certs.issue(t, "client")
	renewed, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(keyFile, old, 0o600)
	if _, err := c.Dial(ctx, broker); mirror.KindOf(err) != mirror.Unreachable {
		t.Fatalf("half renewed: %v", err)
	}
	os.WriteFile(keyFile, renewed, 0o600)
	conn, err := c.Dial(ctx, broker)
	if err != nil {
		t.Fatalf("renewed: %v", err)
	}
	conn.Close()
}

func TestSASL(t *testing.T) {
	const password = "correct horse battery"
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			fake := startFake(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "mirrord", password))
			file := filepath.Join(t.TempDir(), "password")
			security := mirror.Security{Protocol: "SASL_PLAINTEXT", SASL: mirror.SASL{
				Mechanism: mechanism, Username: "mirrord",
				Password: mirror.Secret("${file:" + file + "}"),
			}}
			if err := reach(t, fake, security); err == nil {
				t.Error("no password file, and yet in")
			}
			os.WriteFile(file, []byte("wrong "+password+"\n"), 0o600)
			err := reach(t, fake, security)
			if err == nil || strings.Contains(err.Error(), password) || mirror.KindOf(err) != mirror.Unreachable {
				t.Errorf("wrong password: %v", err)
			}
			os.WriteFile(file, []byte(password+"\n"), 0o600)
			if err := reach(t, fake, security); err != nil {
				t.Errorf("right password: %v", err)
			}
			c := openCluster(t, Config{Connection: mirror.Connection{BootstrapServers: fake.ListenAddrs(), Security: security}})
			m, err := c.Metadata(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			for id := range m.Brokers {
				conn, err := c.Dial(testContext(t), id)
				if err != nil {
					t.Fatalf("raw connection: %v", err)
				}
				conn.Close()
			}
		})
	}
}

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		os.WriteFile(path, []byte(text), 0o600)
		return path
	}
	t.Setenv("KAFKA_TEST_SECRET", " from the environment ")
	props := write("secrets.properties", "# comment\npassword = p\\u00e4ss=w:ord\nother: ${password}\n")
	for _, tt := range []struct {
		ref  string
		want string
		ok   bool
	}{
		{"", "", true},
		{"${env:KAFKA_TEST_SECRET}", " from the environment ", true},
		{"${env:KAFKA_TEST_UNSET}", "", false},
		{"${file:" + write("plain", "s3cret\n") + "}", "s3cret", true},
		{"${file:" + write("dos", "s3cret\r\n") + "}", "s3cret", true},
		{"${file:" + write("lines", "\n s3cret \n\n") + "}", "\n s3cret \n", true},
		{"${file:" + write("with:colon", "s3cret") + "}", "", false}, // "colon" is a key of the file "with"
		{"${file:" + props + ":password}", "päss=w:ord", true},
		{"${file:" + props + ":other}", "${password}", true},
		{"${file:" + props + ":none}", "", false},
		{"${file:" + dir + "/absent}", "", false},
		{"${vault:x}", "", false},
		{"${file:}", "", false},
		{"${file}", "", false},
		{"literal", "", false},
		{"${env:KAFKA_TEST_SECRET", "", false},
	} {
		got, err := resolve(mirror.Secret(tt.ref))
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%s: %q, %v", tt.ref, got, err)
		}
		if err != nil && (strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "literal")) {
			t.Errorf("%s: the error tells the secret: %v", tt.ref, err)
		}
	}
}

func TestBearerTokens(t *testing.T) {
	var asked atomic.Int32
	var lifetime atomic.Int64
	lifetime.Store(3600)
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id, secret, _ := r.BasicAuth()
		if r.ParseForm(); id != "mirrord" || secret != "hush" || r.Form.Get("grant_type") != "client_credentials" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":"invalid_client","error_description":"not %s"}`, secret)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{
			"access_token": fmt.Sprintf("%s-%d", r.Form.Get("scope"), asked.Add(1)),
			"token_type":   "bearer", "expires_in": lifetime.Load(),
		})
	}))
	t.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); endpoint.Close() })
	open := func(secret string) *security {
		t.Setenv("KAFKA_TEST_SECRET", secret)
		s, err := newSecurity(Config{DialTimeout: time.Second, Connection: mirror.Connection{Security: mirror.Security{
			Protocol: "SASL_SSL", SASL: mirror.SASL{
				Mechanism: "OAUTHBEARER", TokenEndpoint: endpoint.URL, ClientID: "mirrord",
				ClientSecret: "${env:KAFKA_TEST_SECRET}", Scope: "kafka",
			},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open("hush")
	ctx := testContext(t)
	for range 3 {
		if token, err := s.bearer(ctx); err != nil || token != "kafka-1" {
			t.Fatalf("token %q, %v", token, err)
		}
	}
	s.token.Expiry = time.Now().Add(30 * time.Second) // not expired, but about to
	if token, err := s.bearer(ctx); err != nil || token != "kafka-2" {
		t.Errorf("token %q, %v: want a new one before the old one expires", token, err)
	}
	_, out, err := s.mechanism().Authenticate(ctx, "broker:9093")
	if err != nil || !strings.Contains(string(out), "auth=Bearer kafka-2") {
		t.Errorf("first message %q, %v", out, err)
	}
	if _, err := open("wr0ng").bearer(ctx); err == nil || strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("refused: %v", err)
	}
}

func FuzzSecret(f *testing.F) {
	for _, seed := range []string{"", "${file:/x:y}", "${env:A}", "${:}", "plain"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		if strings.Contains(ref, "file:") { // reads only what does not exist
			ref = strings.ReplaceAll(ref, "file:", "file:/nonexistent/")
		}
		if got, err := resolve(mirror.Secret(ref)); err != nil && got != "" {
			t.Errorf("%q: %q and %v", ref, got, err)
		}
	})
}
