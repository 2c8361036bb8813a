package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"mirrord/internal/mirror"
)

var update = flag.Bool("update", false, "write the golden files anew")

const least = "destination: {bootstrap_servers: [localhost:9094]}\n"

func load(t *testing.T, yaml string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mirrord.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(path)
}

func TestLeftOutKeysHaveTheirDefaults(t *testing.T) {
	got, err := load(t, least)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.File, want.Destination.BootstrapServers = got.File, []string{"localhost:9094"}
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
}

// Each bad file lies beside the text that must be reported for it.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d bad files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			_, err := Load(file)
			mistakes, ok := errors.AsType[*Mistakes](err)
			if !ok {
				t.Fatalf("got %v, want mistakes", err)
			}
			for _, one := range mistakes.List {
				if one.Line == 0 {
					t.Errorf("no line: %s", mistakes.Describe(one))
				}
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			dir, err := filepath.Abs(filepath.Dir(file))
			if err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(mistakes.Error(), dir, "DIR") + "\n"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func TestGoodFileSetsEverything(t *testing.T) {
	got, err := Load("testdata/good/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs("testdata/good")
	if err != nil {
		t.Fatal(err)
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	want := &Config{
		File: in("everything.yaml"),
		Destination: mirror.Connection{BootstrapServers: []string{"a:1", "[::1]:2"}, Security: mirror.Security{
			Protocol: "SASL_SSL",
			SASL:     mirror.SASL{Mechanism: "PLAIN", Username: "u", Password: mirror.Secret("${file:" + in("password") + "}")},
			TLS:      mirror.TLS{CAFile: in("ca.pem"), CertFile: in("cert.pem"), KeyFile: in("key.pem"), ServerName: "kafka", SkipHostname: true},
		}},
		GroupID: "g", InstanceID: "i", DataDir: in("data"),
		SessionTimeout: 20 * time.Second, MetadataRefreshInterval: time.Minute, GroupSyncInterval: time.Second,
		StateTopic:  StateTopic{5, 1},
		Retry:       Retry{time.Second, time.Minute, 0},
		Fetch:       Fetch{4, 10 * time.Millisecond, 2, 4 * MiB, 1 * MiB},
		MemoryLimit: GiB, Throttle: 10 * MiB,
		HTTP: HTTP{Listen: "0.0.0.0:0", TokenFile: in("password"), TLS: HTTPTLS{in("cert.pem"), in("key.pem"), in("ca.pem")}},
		Log:  Log{"debug", "json"},
		Mirrors: []mirror.Definition{{
			Name: "east", SourceClusterID: "abc",
			Source: mirror.Connection{BootstrapServers: []string{"s:9"}, Security: mirror.Security{
				Protocol: "SASL_PLAINTEXT",
				SASL:     mirror.SASL{Mechanism: "OAUTHBEARER", TokenEndpoint: "https://id/token", ClientID: "c", ClientSecret: mirror.Secret("${file:" + in("password") + "}"), Scope: "s"},
			}},
			TopicsInclude: []string{"orders", "x.*"}, TopicsExclude: []string{}, TopicPropertiesExclude: []string{"a.b"},
			GroupsInclude: []string{"g.*"}, GroupsExclude: []string{"h"}, ACLsInclude: []string{"topic;*;*;*;User:x"},
			ReplicationFactor: 2, Transactions: "committed", Fillers: "transactions", EpochFencing: "continuous", ReadOnly: "off",
			OnLostRange: "fail", SupportUncleanLeaderElection: true, Throttle: 1000,
		}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestEnvironmentWins(t *testing.T) {
	t.Setenv("MIRRORD_DESTINATION_BOOTSTRAP_SERVERS", "x:1, y:2")
	t.Setenv("MIRRORD_FETCH_THREADS", "3")
	t.Setenv("MIRRORD_THROTTLE", "5MiB")
	t.Setenv("MIRRORD_SESSION_TIMEOUT", "15s")
	t.Setenv("MIRRORD_MIRRORS_0_TOPICS_INCLUDE", `["a{1,2}", b]`)
	t.Setenv("MIRRORD_MIRRORS_1_NAME", "west")
	t.Setenv("MIRRORD_MIRRORS_1_SOURCE_BOOTSTRAP_SERVERS", "w:1")
	t.Setenv("MIRRORD_SERVICE_PORT", "tcp://10.0.0.1:80") // what container platforms add
	got, err := load(t, least+"fetch: {threads: 2}\nmirrors: [{name: east, source: {bootstrap_servers: [s:1]}, topics_include: [c]}]\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, got, want any }{
		{"list", got.Destination.BootstrapServers, []string{"x:1", "y:2"}},
		{"number", got.Fetch.Threads, 3},
		{"size", got.Throttle, 5 * MiB},
		{"duration", got.SessionTimeout, 15 * time.Second},
		{"mirror", got.Mirrors[0].TopicsInclude, []string{"a{1,2}", "b"}},
		{"mirror that only the environment names", got.MirrorNames(), []string{"east", "west"}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, c.got, c.want)
		}
	}
}

func TestMistakeInTheEnvironmentNamesTheVariable(t *testing.T) {
	t.Setenv("MIRRORD_FETCH_THREADS", "many")
	_, err := load(t, least)
	if err == nil || !strings.HasPrefix(err.Error(), "MIRRORD_FETCH_THREADS: fetch.threads: must be a whole number") {
		t.Errorf("got %v", err)
	}
}

// TestVariablesThatAreNoKeysAreMistakes: what is misspelt would be ignored, what is somebody else's must be.
func TestVariablesThatAreNoKeysAreMistakes(t *testing.T) {
	for name, want := range map[string]string{
		"MIRRORD_DESTINATION_BOOTSTRAP_SERVER":       "unknown key; did you mean MIRRORD_DESTINATION_BOOTSTRAP_SERVERS?",
		"MIRRORD_TROTTLE":                            "unknown key; did you mean MIRRORD_THROTTLE?",
		"MIRRORD_LOG":                                "unknown key; did you mean MIRRORD_LOG_LEVEL?",
		"MIRRORD_HTTP_NOTHING_OF_THE_KIND":           "unknown key",
		"MIRRORD_MIRRORS_0_TOPIC_INCLUDE":            "unknown key; did you mean MIRRORD_MIRRORS_0_TOPICS_INCLUDE?",
		"MIRRORD_MIRRORS_1_SOURCE_BOOTSTRAP_SERVERS": "there is no such mirror: mirrors are counted from 0 without a gap, and one that is not in the file needs MIRRORD_MIRRORS_1_NAME",
		"MIRRORD_MIRRORS_2_NAME":                     "there is no such mirror: ",
		"MIRRORD_CONFIG":                             "",
		"MIRRORD_STORM":                              "",
		"MIRRORD_KAFKA_JARS":                         "",
		"MIRRORD_COMMAND_SECRET_0":                   "",
		"MIRRORD_EAST_PASSWORD":                      "",
		"MIRRORD_SERVICE_HOST":                       "",
		"MIRRORD_HTTP_SERVICE_PORT_METRICS":          "",
		"MIRRORD_HTTP_PORT_9464_TCP_ADDR":            "",
		"MIRRORDX_LOG":                               "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "x")
			_, err := load(t, least+"mirrors: [{name: east, source: {bootstrap_servers: [s:1]}}]\n")
			switch {
			case want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case want != "" && (err == nil || !strings.HasPrefix(err.Error(), name+": "+want)):
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
	t.Setenv("MIRRORD_HTTP_PORT", "tcp://10.0.0.1:80")
	if _, err := load(t, least); err != nil {
		t.Error(err)
	}
}

func TestMissingFile(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "absent.yaml"))
	if _, ok := errors.AsType[*Mistakes](err); !ok || !strings.Contains(err.Error(), "absent.yaml: no such file") {
		t.Errorf("got %v", err)
	}
}

func TestAnchorsAndMerges(t *testing.T) {
	got, err := load(t, least+`mirrors:
  - &first {name: a, source: {bootstrap_servers: ["s:1"]}, topics_include: [t]}
  - <<: *first
    name: b
`)
	if err != nil {
		t.Fatal(err)
	}
	if b := got.Mirrors[1]; b.Name != "b" || b.Source.BootstrapServers[0] != "s:1" || b.TopicsInclude[0] != "t" {
		t.Errorf("got %+v", b)
	}
}

func TestEndlessAnchorsEnd(t *testing.T) {
	for _, yaml := range []string{
		"destination: &a {security: *a}\n",
		"fetch: &a\n  <<: *a\n",
		"mirrors: &a [*a, *a]\n",
	} {
		if _, err := load(t, yaml); err == nil {
			t.Errorf("%s: accepted", yaml)
		}
	}
}

func FuzzParseNeverPanics(f *testing.F) {
	f.Add([]byte(least))
	f.Add([]byte("mirrors: [{name: a}, *x]"))
	f.Add([]byte("a: &a [*a]\n---\nb"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := parse(data, "/mirrord.yaml")
		if (cfg == nil) == (err == nil) {
			t.Errorf("%v, %v", cfg, err)
		}
	})
}

func TestChangedNamesKeys(t *testing.T) {
	a, b := Default(), Default()
	b.HTTP.Listen, b.Fetch.Threads = "127.0.0.1:1", 2
	if got := Changed(&a, &b); !reflect.DeepEqual(got, []string{"fetch.threads", "http.listen"}) {
		t.Errorf("got %v", got)
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{"0": 0, "1": 1, "10MiB": 10 << 20, "1.5GiB": 3 << 29, "500kB": 500_000, "2 KiB": 2048, "7B": 7} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("%s: got %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "MiB", "ten", "1TB1", "NaN", "1e40GiB"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("%q: got %d, want an error", in, got)
		}
	}
	for _, n := range []int64{0, 1, 1023, KiB, 3 * MiB, 5 * GiB} {
		if back, err := ParseSize(FormatSize(n)); err != nil || back != n {
			t.Errorf("%d: %s, %d, %v", n, FormatSize(n), back, err)
		}
	}
}
