package config

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mirrord/internal/mirror"
)

func TestApplyProperties(t *testing.T) {
	d, err := ApplyProperties(mirror.DefaultDefinition("east"), map[string]string{
		"bootstrap.servers": "a:9092, b:9092", "source.cluster.id": "id1", "security.protocol": "sasl_ssl",
		"sasl.mechanism":          "SCRAM-SHA-512",
		"sasl.jaas.config":        `org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="${file:/run/p:pw}";`,
		"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM", "ssl.keystore.location": "/client.pem",
		"ssl.endpoint.identification.algorithm": "", "topics.include": "a[0-9]{1,2},b.*", "topics.exclude": "", "groups.exclude": "g",
		"acls.include": "*", "transactions": "exact", "fillers": "markers", "replication.factor": "2", "throttle": "10MiB",
		"support.unclean.leader.election": "true", "read.only": "off", "on.lost.range": "fail", "epoch.fencing": "continuous",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := mirror.DefaultDefinition("east")
	want.Source = mirror.Connection{BootstrapServers: []string{"a:9092", "b:9092"}, Security: mirror.Security{
		Protocol: "SASL_SSL",
		SASL:     mirror.SASL{Mechanism: "SCRAM-SHA-512", Username: "u", Password: "${file:/run/p:pw}"},
		TLS:      mirror.TLS{CAFile: "/ca.pem", CertFile: "/client.pem", KeyFile: "/client.pem", SkipHostname: true},
	}}
	want.SourceClusterID, want.TopicsInclude, want.TopicsExclude, want.GroupsExclude = "id1", []string{"a[0-9]{1,2}", "b.*"}, []string{}, []string{"g"}
	want.Transactions, want.Fillers, want.ReplicationFactor, want.Throttle = mirror.Exact, mirror.Markers, 2, 10*MiB
	want.SupportUncleanLeaderElection, want.ReadOnly, want.OnLostRange, want.EpochFencing = true, mirror.Off, mirror.Fail, mirror.Continuous
	if !reflect.DeepEqual(d, want) {
		t.Errorf("got  %+v\nwant %+v", d, want)
	}
}

// TestSecretsAreNeverLiteral: whatever form a literal takes, it is refused, and no message repeats it.
func TestSecretsAreNeverLiteral(t *testing.T) {
	const secret = "hunter2hunter2"
	base := map[string]string{"bootstrap.servers": "a:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
	for key, value := range map[string]string{
		"sasl.password":    secret,
		"sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule required username="mirrord" password="` + secret + `";`,
		"sasl.oauthbearer.client.credentials.client.secret": secret,
		"ssl.key.password":        secret,
		"ssl.keystore.password":   secret,
		"ssl.truststore.password": secret,
		"sasl.jaas.config ":       secret,
		"ssl.keystore.key":        secret,
	} {
		settings := maps.Clone(base)
		settings[key] = value
		_, err := ApplyProperties(mirror.DefaultDefinition("east"), settings, nil)
		if err == nil {
			t.Errorf("%s: a literal secret was accepted", key)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the message repeats the secret: %v", key, err)
		}
	}
}

func TestApplyPropertiesTellsAllMistakes(t *testing.T) {
	_, err := ApplyProperties(mirror.DefaultDefinition("east"), map[string]string{
		"bootstrap.servers": "nowhere", "topic.include": "a", "transactions": "perhaps", "ssl.truststore.location": "ca.pem",
		"ssl.truststore.type": "JKS", "acls.include": "a;b,TOPIC;(;*;*;*", "replication.factor": "many",
	}, nil)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, word := range []string{
		"bootstrap.servers", "host:port", "topic.include", "did you mean topics.include", "transactions: must be",
		"absolute", "PEM", "resourceType;resourceName", "missing closing )", "replication.factor",
	} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("no %q in:\n%v", word, err)
		}
	}
}

func TestAlterKeepsWhatIsNotNamed(t *testing.T) {
	before, err := ApplyProperties(mirror.DefaultDefinition("east"), map[string]string{
		"bootstrap.servers": "a:1",
		"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "${env:P}", "topics.include": "x",
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	after, err := ApplyProperties(before, map[string]string{"topics.include": "y"}, nil)
	if want := before; err != nil || !after.Source.Equal(want.Source) || !slices.Equal(after.TopicsInclude, []string{"y"}) {
		t.Errorf("got %+v, %v", after, err)
	}
	after, err = ApplyProperties(before, map[string]string{"security.protocol": "PLAINTEXT"}, nil)
	if err != nil || after.Source.Security != (mirror.Security{Protocol: "PLAINTEXT"}) || after.Source.BootstrapServers[0] != "a:1" {
		t.Errorf("got %+v, %v", after, err)
	}
}

func TestReferencesOfOtherValues(t *testing.T) {
	settings := map[string]string{"bootstrap.servers": "${env:SERVERS}", "topics.include": "${file:/topics}"}
	if _, err := ApplyProperties(mirror.DefaultDefinition("east"), settings, nil); err != nil {
		t.Errorf("where they cannot be resolved: %v", err)
	}
	resolve := func(ref mirror.Secret) (string, error) {
		return map[mirror.Secret]string{"${env:SERVERS}": "a:1,b:2", "${file:/topics}": "x,y"}[ref], nil
	}
	d, err := ApplyProperties(mirror.DefaultDefinition("east"), settings, resolve)
	if err != nil || len(d.Source.BootstrapServers) != 2 || len(d.TopicsInclude) != 2 {
		t.Errorf("got %+v, %v", d, err)
	}
}

func TestSplitList(t *testing.T) {
	for in, want := range map[string][]string{
		"":                 nil,
		" a , b,,":         {"a", "b"},
		"a{1,2},[,]b":      {"a{1,2}", "[,]b"},
		"audit(.)events":   {"audit(.)events"},
		"}a,b":             {"}a", "b"},
		"orders[0-9]+,x.*": {"orders[0-9]+", "x.*"},
	} {
		if got := SplitList(in); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestLoadClientSecurity(t *testing.T) {
	file := filepath.Join(t.TempDir(), "client.properties")
	text := "client.id=x\nrequest.timeout.ms=1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.location=testdata/good/ca.pem\nssl.truststore.type=PEM\n" +
		"sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n  username=\"u\" password=\"p\\\"w\";\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := LoadClientSecurity(file)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSuffix(strings.TrimPrefix(string(s.SASL.Password), "${env:"), "}")
	if s.SASL.Username != "u" || os.Getenv(name) == "" || !filepath.IsAbs(s.TLS.CAFile) {
		t.Errorf("got %+v", s)
	}
}

// TestClientSecurityLooksIntoItsFiles: they lie on this host, so what is wrong with them is known before anything is
// dialled.
func TestClientSecurityLooksIntoItsFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "client.properties")
	text := "security.protocol=SSL\nssl.truststore.location=testdata/good/password\nssl.keystore.location=testdata/good/cert.pem\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := LoadClientSecurity(file)
	for _, want := range []string{"ssl.truststore.location: ", "password holds no PEM certificate", "ssl.keystore.location: ", "cert.pem holds no PEM key"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}
