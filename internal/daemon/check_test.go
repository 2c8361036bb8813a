package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mirrord/internal/config"
	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

func TestCheckReportsBothClusters(t *testing.T) {
	src, dst := startFake(t, "src"), startFake(t, "dst")
	src.create(t, "orders", 1)
	var out bytes.Buffer
	if err := Check(t.Context(), configFile(t, dst.addr(), mirrorOf(src.addr(), "orders")), false, &out); err != nil {
		t.Errorf("%v:\n%s", err, out.String())
	}
	for _, want := range []string{"the file is valid: 1 mirror", "cluster dst, 1 broker", "cluster src, 1 broker", "topic __mirror_state will be created", "topics_include selects 1 topic,", "modes: fillers"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("does not say %q:\n%s", want, out.String())
		}
	}
}

func TestCheckNamesTheClusterThatIsBothSides(t *testing.T) {
	dst := startFake(t, "one-and-the-same")
	var out bytes.Buffer
	err := Check(t.Context(), configFile(t, dst.addr(), mirrorOf(dst.addr(), "orders")), false, &out)
	if c, ok := errors.AsType[*CheckError](err); !ok || c.Count != 1 || !strings.Contains(out.String(), "one and the same cluster one-and-the-same") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

func TestCheckTellsWhatIsWrong(t *testing.T) {
	src, dst := startFake(t, "src"), startFake(t, "dst")
	text := "mirrors: [{name: east, source: {bootstrap_servers: [\"" + src.addr() + "\"], cluster_id: other}, topics_include: [absent], replication_factor: 3}]\n"
	var out bytes.Buffer
	file := configFile(t, dst.addr(), text)
	edit(t, file, "replication_factor: 1}", "replication_factor: 3}")
	err := Check(t.Context(), file, false, &out)
	if _, ok := errors.AsType[*CheckError](err); !ok {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{
		"WRONG  state_topic.replication_factor is 3, the destination has 1 broker", "set state_topic.replication_factor to at most 1",
		"WRONG  cluster src answers, but source.cluster_id is other", "note   topics_include matches none",
		"WRONG  replication_factor is 3, the destination has 1 broker",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("does not say %q:\n%s", want, out.String())
		}
	}
}

func TestCheckOfflineConnectsNowhere(t *testing.T) {
	var out bytes.Buffer
	if err := Check(t.Context(), configFile(t, deadAddress(t), ""), true, &out); err != nil || !strings.Contains(out.String(), "the file is valid") {
		t.Errorf("%v:\n%s", err, out.String())
	}
	if err := Check(t.Context(), filepath.Join(t.TempDir(), "absent"), true, &out); err == nil {
		t.Error("a missing file is fine")
	}
}

func TestCheckOfAnUnreachableClusterEnds(t *testing.T) {
	var out bytes.Buffer
	err := Check(t.Context(), configFile(t, deadAddress(t), ""), false, &out)
	if _, ok := errors.AsType[*CheckError](err); !ok || !strings.Contains(out.String(), "cannot be reached") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}

// TestCheckTellsWhatTheFileCannotMean: what is legal by itself and will not do what it looks like.
func TestCheckTellsWhatTheFileCannotMean(t *testing.T) {
	src, dst := startFake(t, "src"), startFake(t, "dst")
	for _, topic := range []string{"orders", "pay-a", "pay-b", "left"} {
		src.create(t, topic, 1)
	}
	east := mirrorOf(src.addr(), `orders, nosuch, "pay.*", "late.*"`)
	west := fmt.Sprintf("  - {name: west, source: {bootstrap_servers: [\"%s\"]}, topics_include: [orders, left, \"pay-[ab]\"]}\n", src.addr())
	north := fmt.Sprintf("  - {name: north, source: {bootstrap_servers: [\"%s\"]}, topics_include: [left], topics_exclude: [left]}\n", src.addr())
	east = "mirrors:\n  - " + strings.TrimSuffix(strings.TrimPrefix(east, "mirrors: ["), "]\n") + "\n"
	file := configFile(t, dst.addr(), east+west+north)
	edit(t, file, "data_dir: data", "data_dir: /proc/nope")
	for _, offline := range []bool{true, false} {
		var out bytes.Buffer
		err := Check(t.Context(), file, offline, &out)
		want := []string{"note   data_dir /proc/nope: /proc cannot be written to: ", "WRONG  topic orders is included by mirror east and by mirror west"}
		wrong := 1
		if !offline {
			want = append(want, "topics_include: without effect so far: nosuch, late.*", "WRONG  2 topics selected by mirror east already: pay-a, pay-b")
			wrong = 2
		}
		if c, ok := errors.AsType[*CheckError](err); !ok || c.Count != wrong {
			t.Errorf("offline %v: %v, want %d wrong", offline, err, wrong)
		}
		for _, w := range want {
			if !strings.Contains(out.String(), w) {
				t.Errorf("offline %v: does not say %q:\n%s", offline, w, out.String())
			}
		}
	}
}

// TestABadListenAddressIsABadFile: run ends with the exit code of a bad file, naming the key.
func TestABadListenAddressIsABadFile(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "mirrord.yaml")
	text := fmt.Sprintf("destination: {bootstrap_servers: [\"%s\"]}\nhttp: {listen: %q}\n", deadAddress(t), taken.Addr())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = New(cfg, Options{Log: slog.New(slog.DiscardHandler)})
	if _, ok := errors.AsType[*config.Mistakes](err); !ok || !strings.Contains(err.Error(), "mirrord.yaml: http: ") || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("got %v", err)
	}
}

// edit replaces a part of a file.
func edit(t *testing.T, file, before, after string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, bytes.Replace(data, []byte(before), []byte(after), 1), 0o600); err != nil {
		t.Fatal(err)
	}
}

// entries makes the settings of a broker.
func entries(kv ...string) kafka.Configs {
	out := kafka.Configs{Entries: map[string]kafka.ConfigEntry{}}
	for i := 0; i < len(kv); i += 2 {
		out.Entries[kv[i]] = kafka.ConfigEntry{Key: kv[i], Value: kv[i+1]}
	}
	return out
}

func TestCheckJudgesBrokerSettings(t *testing.T) {
	base := func() *checker {
		cfg := config.Default()
		cfg.Destination = mirror.Connection{BootstrapServers: []string{"k:1"}, Security: mirror.Security{Protocol: "SASL_PLAINTEXT", SASL: mirror.SASL{Mechanism: "PLAIN", Username: "mirrord"}}}
		return &checker{
			report: &report{out: new(bytes.Buffer)}, cfg: &cfg, brokers: 3, destinationID: "x", authorizer: true,
			settings: map[int32]kafka.Configs{1: entries(keyVerification, "false"), 2: entries(keyVerification, "false")},
		}
	}
	said := func(c *checker) string { return c.out.(*bytes.Buffer).String() }

	c := base()
	if !c.takesForeignTransactions() {
		t.Error("verification is off everywhere, yet not seen")
	}
	c.settings[2] = entries(keyVerification, "true")
	if c.takesForeignTransactions() {
		t.Error("one broker verifies, yet not seen")
	}

	c = base()
	c.settings = map[int32]kafka.Configs{1: entries(keySessionMin, "6000", keySessionMax, "8000", keyMinISR, "2", keyDefaultRF, "1", keyExpiration, "60000")}
	c.session()
	c.durability()
	for _, want := range []string{"above the brokers' group.max.session.timeout.ms", "set session_timeout to at most 8000ms", "could not be written", "lost with one broker"} {
		if !strings.Contains(said(c), want) {
			t.Errorf("does not say %q:\n%s", want, said(c))
		}
	}

	for _, s := range []struct {
		users        string
		super, known bool
	}{{"User:admin;User:mirrord", true, true}, {"User:admin", false, true}, {"", false, true}} {
		c = base()
		c.settings = map[int32]kafka.Configs{1: entries(keySuperUsers, s.users)}
		if super, known := c.superUser(); super != s.super || known != s.known {
			t.Errorf("super.users %q: %v, %v", s.users, super, known)
		}
	}
	c = base()
	c.rights = 1<<kafka.OpClusterAction | 1<<kafka.OpAlter | 1<<kafka.OpAlterConfigs
	if super, _ := c.superUser(); !super {
		t.Error("all rights on the cluster without a rule, yet no super user")
	}
	c.acls = []kafka.ACL{{ResourceType: "CLUSTER", Principal: "User:mirrord", Operation: "ALL", Permission: "ALLOW"}}
	if super, known := c.superUser(); super || known {
		t.Errorf("rights by rules: super %v, known %v", super, known)
	}

	c = base()
	d := mirror.DefaultDefinition("east")
	d.Transactions, d.Fillers = mirror.Exact, mirror.Markers
	c.modes(d)
	if c.wrong != 2 || !strings.Contains(said(c), "kafka-acls --bootstrap-server k:1 --add --allow-principal User:mirrord --operation Alter --cluster") {
		t.Errorf("%d wrong:\n%s", c.wrong, said(c))
	}
}
