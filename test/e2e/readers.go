package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A foreignReader is a consumer that shares no code with mirrord. It gives a line for each record of partition 0 that it
// is shown under an isolation level, from the log start to the end that the log has: offset, timestamp, key, value,
// headers, NULL told from nothing. Lines of different readers compare.
type foreignReader func(c *Cluster, topic, isolation string) (string, error)

var foreignReaders = map[string]foreignReader{"Java": readJava, "librdkafka": readKcat, "franz-go": readFranz}

const (
	committed   = "read_committed"
	uncommitted = "read_uncommitted"
)

// readJava is the console consumer that comes with Apache Kafka. It is told how many records there are, for it has no end
// of its own but patience.
func readJava(c *Cluster, topic, isolation string) (string, error) {
	n, err := c.count(topic, isolation)
	if err != nil {
		return "", err
	}
	jars, err := Jars(defaultVersion)
	if err != nil {
		return "", err
	}
	args := []string{
		"-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", jars + "/*",
		"org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", c.Bootstrap(), "--topic", topic, "--partition", "0",
		"--offset", "earliest", "--isolation-level", isolation, "--max-messages", strconv.Itoa(n), "--timeout-ms", "30000",
	}
	for _, p := range []string{"print.offset=true", "print.timestamp=true", "print.headers=true", "print.key=true", "null.literal=NULL"} {
		args = append(args, "--formatter-property", p)
	}
	out, err := output(exec.Command("java", args...))
	if err != nil {
		return "", err
	}
	var lines strings.Builder
	for line := range strings.Lines(out) { // CreateTime:…, Offset:…, headers, key, value
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 5 {
			return "", fmt.Errorf("the console consumer prints %q", line)
		}
		fmt.Fprintf(&lines, "%s\t%s\t%s\t%s\t%s\n", after(f[1]), after(f[0]), f[3], f[4], strings.TrimPrefix(f[2], "NO_HEADERS"))
	}
	return lines.String(), nil
}

func after(label string) string { return label[strings.IndexByte(label, ':')+1:] }

// readKcat is librdkafka.
func readKcat(c *Cluster, topic, isolation string) (string, error) {
	if _, err := exec.LookPath("kcat"); err != nil {
		return "", fmt.Errorf("kcat is missing, on Debian: apt-get install -y kcat: %w", err)
	}
	out, err := output(exec.Command("kcat", "-C", "-q", "-e", "-b", c.Bootstrap(), "-t", topic, "-p", "0", "-o", "beginning",
		"-X", "isolation.level="+isolation, "-f", `%o\t%T\t%K\t%k\t%S\t%s\t%h\n`))
	if err != nil {
		return "", err
	}
	var lines strings.Builder
	for line := range strings.Lines(out) { // key and value come with their lengths
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 7 {
			return "", fmt.Errorf("kcat prints %q", line)
		}
		for i := 2; i <= 4; i += 2 {
			if f[i] == "-1" {
				f[i+1] = "NULL"
			}
		}
		fmt.Fprintf(&lines, "%s\t%s\t%s\t%s\t%s\n", f[0], f[1], f[3], f[5], strings.ReplaceAll(f[6], "=", ":"))
	}
	return lines.String(), nil
}

func output(cmd *exec.Cmd) (string, error) {
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd.Path, err, problems.String())
	}
	return out.String(), nil
}

// readFranz is the whole consumer of franz-go, where the tests' own reader uses its decoder only.
func readFranz(c *Cluster, topic, isolation string) (string, error) {
	level := kgo.ReadUncommitted()
	if isolation == committed {
		level = kgo.ReadCommitted()
	}
	end, err := c.end(topic, isolation)
	if err != nil {
		return "", err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addrs()...), kgo.FetchIsolationLevel(level), kgo.DisableClientMetrics(), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		return "", err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var lines strings.Builder
	for next := int64(0); next < end; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return "", fmt.Errorf("at offset %d of %d: %w", next, end, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				fmt.Fprintf(&lines, "%d\t%d\t%s\t%s\t%s\n", r.Offset, r.Timestamp.UnixMilli(), orNull(r.Key), orNull(r.Value), printed(r.Headers))
			}
		})
	}
	return lines.String(), nil
}

func orNull(b []byte) string {
	if b == nil {
		return "NULL"
	}
	return string(b)
}

func printed(headers []kgo.RecordHeader) string {
	var all []string
	for _, h := range headers {
		all = append(all, h.Key+":"+orNull(h.Value))
	}
	return strings.Join(all, ",")
}

// end is where a reader of an isolation level ends.
func (c *Cluster) end(topic, isolation string) (int64, error) {
	logs, err := c.Logs(context.Background(), topic)
	if isolation == committed {
		return logs[0].Stable, err
	}
	return logs[0].End, err
}

// count is how many records partition 0 has for a reader of an isolation level.
func (c *Cluster) count(topic, isolation string) (n int, err error) {
	logs, err := c.Logs(context.Background(), topic)
	if err != nil {
		return 0, err
	}
	r := newReader(c, topic, 0, logs[0])
	if isolation == uncommitted {
		r.uncommitted, r.end = true, logs[0].End
	}
	for {
		rec, err := r.next()
		if rec == nil {
			return n, err
		}
		if !rec.Attrs.IsControl() {
			n++
		}
	}
}
