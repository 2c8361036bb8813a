package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// rights are what a principal needs, and no more.
func destinationRights(principal string) (rules []string) {
	for _, right := range []string{
		"CREATE TOPIC PREFIXED __mirror_", "READ TOPIC PREFIXED __mirror_", "WRITE TOPIC PREFIXED __mirror_", "DESCRIBE_CONFIGS TOPIC PREFIXED __mirror_",
		"ALTER_CONFIGS TOPIC PREFIXED __mirror_",
		"CREATE TOPIC PREFIXED t-", "READ TOPIC PREFIXED t-", "WRITE TOPIC PREFIXED t-", "DESCRIBE_CONFIGS TOPIC PREFIXED t-",
		"ALTER_CONFIGS TOPIC PREFIXED t-", "ALTER TOPIC PREFIXED t-", "DELETE TOPIC PREFIXED t-",
		"READ GROUP LITERAL mirrord", "READ GROUP PREFIXED g-", "DELETE GROUP PREFIXED g-",
		"WRITE TRANSACTIONAL_ID PREFIXED mirrord", // the state writer's
	} {
		rules = append(rules, aclLine(principal, right))
	}
	return rules
}

// fillerRight is needed where holes are filled by empty transactions.
const fillerRight = "WRITE TRANSACTIONAL_ID PREFIXED __mirror_filler-"

func sourceRights(principal string) (rules []string) {
	for _, right := range []string{"READ TOPIC PREFIXED t-", "DESCRIBE_CONFIGS TOPIC PREFIXED t-", "DESCRIBE GROUP PREFIXED g-"} {
		rules = append(rules, aclLine(principal, right))
	}
	return rules
}

func aclLine(principal, right string) string {
	operation, rest, _ := strings.Cut(right, " ")
	return fmt.Sprintf("ALLOW %s %s %s", operation, principal, rest)
}

// Both clusters demand TLS and have an authorizer: the source a client certificate, the destination a login by each of
// the mechanisms in turn. With the rights that are needed and no others topics, holes and group offsets are mirrored,
// commands work, files are renewed without a restart, and no secret is to be found anywhere.
func TestSecurity(t *testing.T) {
	a := NewAuthority(t)
	tokens := NewTokenServer(t, password("OAUTHBEARER"), 6*time.Second)
	t.Setenv("JAVA_TOOL_OPTIONS", "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="+tokens.JWKS)
	p := Pair{StartCluster(t, secured(a, t, "source", nil)), StartCluster(t, secured(a, t, "destination", tokens))}
	for _, c := range []*Cluster{p.S, p.D} {
		c.Nodes[0].Proxy.Opaque()
	}
	p.S.Grant(t, sourceRights("User:CN=mirrord")...)
	t.Run("wrong protocol", func(t *testing.T) { wrongProtocol(t, p) })
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"} {
		t.Run(mechanism, func(t *testing.T) {
			s := secureSettings(t, a, p, mechanism, tokens)
			p.D.Grant(t, destinationRights("User:"+mechanism)...)
			switch mechanism {
			case "PLAIN": // fillerRight comes later
			case "SCRAM-SHA-256": // markers instead, and the brokers' limits
				p.D.Grant(t, aclLine("User:"+mechanism, "ALTER CLUSTER LITERAL kafka-cluster"), aclLine("User:"+mechanism, "DESCRIBE_CONFIGS CLUSTER LITERAL kafka-cluster"))
				s.MirrorExtra = []string{"fillers: markers"}
			default:
				p.D.Grant(t, aclLine("User:"+mechanism, fillerRight))
			}
			securely(t, a, p, s, mechanism)
		})
	}
	t.Run("wrong client secret", func(t *testing.T) {
		s := secureSettings(t, a, p, "OAUTHBEARER", tokens)
		s.Security = strings.Replace(s.Security, "client_secret_file: \"", "client_secret_file: \""+secretFile(t, "wrong-secret")+"\", scope: \"", 1)
		s.Security = strings.Replace(s.Security, ", scope: kafka", "", 1)
		m := NewDaemon(t, s)
		m.Launch()
		Eventually(t, 20*time.Second, func() error { return m.wantLog("invalid_client") })
		if strings.Contains(m.Log(), "wrong-secret") {
			t.Error("the log repeats the secret that the token endpoint sent back")
		}
	})
	if tokens.Asked.Load() < 2 {
		t.Errorf("%d tokens were asked for: none was renewed", tokens.Asked.Load())
	}
}

// wrongProtocol: neither side of a connection that disagrees with the other about TLS says so by itself.
func wrongProtocol(t *testing.T, p Pair) {
	m := NewDaemon(t, p.Mirror())
	for _, c := range []struct{ protocol, address, want string }{
		{"PLAINTEXT", p.D.Proxied(), "TLS"},
		{"SSL", p.D.Bootstrap(), "TLS could not begin: the listener may not speak it"},
	} {
		r := m.run("list", "--bootstrap-server", c.address, "--command-config", propertiesFile(t, "security.protocol="+c.protocol))
		t.Logf("%s: %v, %s", c.protocol, r.Took, r.Err)
		if r.Code != 4 || !strings.Contains(r.Err, c.want) || strings.Contains(r.Err, "context") {
			t.Errorf("%s: exit code %d, %s", c.protocol, r.Code, r.Err)
		}
	}
}

// secureSettings are those of a daemon with a client certificate at the source and a login at the destination.
func secureSettings(t *testing.T, a *Authority, p Pair, mechanism string, tokens *TokenServer) Settings {
	t.Helper()
	cert, key, _ := a.Issue(t, "mirrord")
	file := secretFile(t, password(mechanism))
	login := fmt.Sprintf("username: %s, password_file: %q", mechanism, file)
	if mechanism == "OAUTHBEARER" {
		login = fmt.Sprintf("token_endpoint: %q, client_id: %s, client_secret_file: %q, scope: kafka", tokens.URL, mechanism, file)
	}
	if sha, ok := map[string]kadm.ScramMechanism{"SCRAM-SHA-256": kadm.ScramSha256, "SCRAM-SHA-512": kadm.ScramSha512}[mechanism]; ok {
		p.D.setPassword(t, mechanism, sha, password(mechanism))
	}
	s := p.Mirror("t-" + strings.ToLower(mechanism))
	s.Source, s.Destination, s.Direct = p.S.Proxied(), p.D.Proxied(), p.D.Bootstrap()
	s.SourceSecurity = fmt.Sprintf("protocol: SSL, tls: {ca_file: %q, cert_file: %q, key_file: %q}", a.CA(), cert, key)
	s.Security = fmt.Sprintf("protocol: SASL_SSL, sasl: {mechanism: %s, %s}, tls: {ca_file: %q}", mechanism, login, a.CA())
	s.Group = "mirrord"
	s.Extra = []string{"log: {level: debug}"}
	return s
}

func secretFile(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
	return file
}

func (c *Cluster) setPassword(t *testing.T, user string, mechanism kadm.ScramMechanism, password string) {
	t.Helper()
	altered, err := c.adm.AlterUserSCRAMs(context.Background(), nil, []kadm.UpsertSCRAM{{User: user, Mechanism: mechanism, Iterations: 4096, Password: password}})
	must(t, err)
	must(t, altered.Error())
}

func securely(t *testing.T, a *Authority, p Pair, s Settings, mechanism string) {
	topic, group := s.Topics[0], "g-"+strings.ToLower(mechanism)
	p.S.Topic(t, topic, 3)
	x := newTxns(t, p.S)
	x.run(t, topic, 0, 0, false)
	x.run(t, topic, 0, 1, true)
	p.S.Commit(t, group, topic, 0, 5)
	m := NewDaemon(t, s)
	if r := m.withConfig("check"); r.Code != 0 {
		t.Errorf("check: exit code %d\n%s%s", r.Code, r.Out, r.Err)
	}
	life := Unhurried(10 * time.Second)
	began := time.Now()
	if mechanism == "PLAIN" {
		a.IssueFor(t, "mirrord", life)
	}
	m.Start()
	if mechanism == "PLAIN" {
		awaitRow(t, m, topic, 0, 20*time.Second, func(r Partition) bool {
			return r.State == "FAILED" && strings.Contains(r.ErrorMessage, "__mirror_filler-") && strings.Contains(r.ErrorMessage, "grant")
		})
		p.D.Grant(t, aclLine("User:PLAIN", fillerRight))
	}
	load := StartLoad(t, p.S, 500, 3, topic)
	progress(t, p, topic, 3, 30*time.Second)
	Eventually(t, 15*time.Second, func() error { return p.D.wantCommitted(group, topic, 0, 5) })
	for _, verb := range []string{"pause", "resume"} {
		if r := m.withConfig(verb, "--mirror", "east", "--topics", topic); r.Code != 0 {
			t.Errorf("%s: exit code %d, %s%s", verb, r.Code, r.Out, r.Err)
		}
	}

	a.Issue(t, "mirrord")
	renewed := "changed-" + password(mechanism)
	switch mechanism {
	case "SCRAM-SHA-256", "SCRAM-SHA-512":
		sha := map[string]kadm.ScramMechanism{"SCRAM-SHA-256": kadm.ScramSha256, "SCRAM-SHA-512": kadm.ScramSha512}[mechanism]
		file := strings.Split(strings.Split(s.Security, "password_file: \"")[1], "\"")[0]
		must(t, os.WriteFile(file, []byte(renewed+"\n"), 0o600))
		p.D.setPassword(t, mechanism, sha, renewed)
	}
	if mechanism == "PLAIN" {
		time.Sleep(time.Until(began.Add(life + time.Second))) // the first certificate is no good any more
	}
	p.S.Nodes[0].Proxy.Reset()
	p.D.Nodes[0].Proxy.Reset()
	progress(t, p, topic, 3, 30*time.Second)
	load.Stop(t)
	AwaitLevel(t, p.S, p.D, 30*time.Second, topic)
	Identical(t, p.S, p.D, topic)
	if r := m.withConfig("stop", "--mirror", "east", "--topics", topic, "--drain"); r.Code != 0 {
		t.Errorf("stop: exit code %d, %s%s", r.Code, r.Out, r.Err)
	}
	must(t, writable(p.D, topic, 3))
	if n := m.Metric("mirrord_partition_failures_total"); n > 0 && mechanism != "PLAIN" {
		t.Errorf("partitions failed %v times while logins and connections were renewed", n)
	}
	SoundState(t, p.D)
	for _, secret := range []string{password(mechanism), renewed, "PRIVATE KEY"} {
		notToBeFound(t, p, m, secret)
	}
	m.Stop()
}

// withConfig runs a command with the instance's own file, which it logs in by.
func (d *Daemon) withConfig(args ...string) Result {
	d.t.Helper()
	return d.run(append(args, "--config", d.ConfigFile())...)
}

// notToBeFound looks for a secret in everything that a daemon shows or writes.
func notToBeFound(t *testing.T, p Pair, m *Daemon, secret string) {
	t.Helper()
	var metrics, mirrors bytes.Buffer
	must(t, m.get("/metrics", &metrics))
	must(t, m.get("/api/v1/mirrors/east", &mirrors))
	found := map[string]string{"log": m.Log(), "metrics": metrics.String(), "API": mirrors.String(), "describe": m.Do("describe", "--json").Out, "state dump": m.Do("state", "dump").Out}
	for _, r := range StateLog(t, p.D) {
		found["state topic"] += string(r.Value)
	}
	for where, text := range found {
		if strings.Contains(text, secret) {
			t.Errorf("%s holds the secret %q", where, secret)
		}
	}
}

// Wrong secrets and untrusted certificates are told without the secret, and the service lives on and comes up by itself
// once they are right.
func TestWrongSecrets(t *testing.T) {
	t.Parallel()
	p := GuardedPair(t)
	p.S.Topic(t, "t", 1)
	p.S.Send(t, nil, Numbered("t", 0, 0, 10)...)
	s := p.As(t, SuperUser, "t")
	file := secretFile(t, "not-the-password")
	s.Security = fmt.Sprintf("protocol: SASL_PLAINTEXT, sasl: {mechanism: SCRAM-SHA-512, username: %s, password_file: %q}", SuperUser, file)
	m := NewDaemon(t, s)
	m.Launch()
	Eventually(t, 20*time.Second, func() error { return m.wantLog("destination", "SASL") })
	if strings.Contains(m.Log(), "not-the-password") {
		t.Error("the log holds the password")
	}
	if r := m.withConfig("list"); r.Code != 4 && r.Code != 1 || strings.Contains(r.Err, "not-the-password") {
		t.Errorf("list: exit code %d, %s", r.Code, r.Err)
	}
	must(t, os.WriteFile(file, []byte(SuperUser+"\n"), 0o600))
	AwaitLevel(t, p.S, p.D, 30*time.Second, "t")
}
