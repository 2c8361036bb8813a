package e2e

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// jvm runs each node as a KRaft broker and controller in a process of its own, or as a broker that a ZooKeeper server
// binds to its cluster.
type jvm struct {
	dir       string
	jars      string
	heap      string
	flags     []string
	procs     []*process
	zookeeper *process
}

func (j *jvm) start(ctx context.Context, nodes []*Node, o Options) (err error) {
	if j.jars, err = Jars(o.Version); err != nil {
		return err
	}
	j.heap, j.flags = cmpOr(o.Heap, "512m"), []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxDirectMemorySize=256m"}
	if o.Server {
		j.flags = []string{"-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"}
	}
	j.procs = make([]*process, len(nodes))
	id, voters := newClusterID(), voters(nodes)
	if o.ZooKeeper {
		id, voters = "", nodes[0].voter
		if err := j.startZooKeeper(ctx, voters); err != nil {
			return err
		}
	}
	errs := make(chan error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { errs <- j.first(ctx, i, id, properties(n, voters, o)) })
	}
	wg.Wait()
	for range nodes {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return err
}

// first formats a node's storage, unless ZooKeeper gives the cluster its id, and starts the node.
func (j *jvm) first(ctx context.Context, i int, clusterID, props string) error {
	if err := os.MkdirAll(j.node(i), 0o755); err != nil {
		return err
	}
	props += "log.dirs=" + filepath.Join(j.node(i), "data") + "\n"
	if err := os.WriteFile(filepath.Join(j.node(i), "server.properties"), []byte(props), 0o644); err != nil {
		return err
	}
	if clusterID == "" {
		return j.launch(i)
	}
	format := exec.CommandContext(ctx, "java", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp", j.jars+"/*",
		"kafka.tools.StorageTool", "format", "-t", clusterID, "-c", filepath.Join(j.node(i), "server.properties"))
	if out, err := format.CombinedOutput(); err != nil {
		return fmt.Errorf("format storage: %w\n%s", err, out)
	}
	return j.launch(i)
}

func (j *jvm) node(i int) string { return filepath.Join(j.dir, fmt.Sprint("node-", i+1)) }

func (j *jvm) launch(i int) (err error) {
	args := append([]string{"-Xms128m", "-Xmx" + j.heap, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"}, j.flags...)
	cmd := exec.Command("java", append(args, "kafka.Kafka", "server.properties")...)
	cmd.Dir, cmd.Env = j.node(i), append(os.Environ(), "CLASSPATH="+j.jars+"/*")
	j.procs[i], err = startProcess(cmd, filepath.Join(j.node(i), "log"))
	return err
}

func (j *jvm) kill(i int) error { j.procs[i].kill(); return nil }

func (j *jvm) stop(i int) error {
	j.procs[i].signal(syscall.SIGTERM)
	if !j.procs[i].wait(30 * time.Second) {
		j.procs[i].kill()
		return fmt.Errorf("node %d did not end in 30 s", i+1)
	}
	return nil
}

func (j *jvm) freeze(i int) error { j.procs[i].signal(syscall.SIGSTOP); return nil }

func (j *jvm) thaw(i int) error { j.procs[i].signal(syscall.SIGCONT); return nil }

func (j *jvm) logTail(i int) string { return tail(filepath.Join(j.node(i), "log"), 3000) }

func (j *jvm) close() {
	for _, p := range j.procs {
		if p != nil {
			p.kill()
		}
	}
	if j.zookeeper != nil {
		j.zookeeper.kill()
	}
}

func newClusterID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[0] &= 0x3f // a leading dash would look like an option
	return base64.RawURLEncoding.EncodeToString(id[:])
}

func voters(nodes []*Node) string {
	var out []string
	for _, n := range nodes {
		out = append(out, fmt.Sprintf("%d@%s", n.ID, n.voter))
	}
	return strings.Join(out, ",")
}

// properties of a node whose timings suit tests: quick elections, frequent retention checks, an eager cleaner.
// voters is the address of the ZooKeeper server where there is one.
func properties(n *Node, voters string, o Options) string {
	copies := fmt.Sprint(min(3, o.Nodes))
	props := map[string]string{
		"process.roles": "broker,controller", "node.id": fmt.Sprint(n.ID), "controller.quorum.voters": voters,
		"listeners":                                fmt.Sprintf("DIRECT://%s,PROXIED://%s,INTERNAL://%s,CONTROLLER://%s", n.Addr, n.upstream, n.internal, n.voter),
		"advertised.listeners":                     fmt.Sprintf("DIRECT://%s,PROXIED://%s,INTERNAL://%s", n.Addr, n.viaProxy, n.internal),
		"listener.security.protocol.map":           "DIRECT:PLAINTEXT,PROXIED:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name":               "INTERNAL",
		"controller.listener.names":                "CONTROLLER",
		"offsets.topic.replication.factor":         copies,
		"transaction.state.log.replication.factor": copies, "transaction.state.log.min.isr": "1",
		"share.coordinator.state.topic.replication.factor": copies, "share.coordinator.state.topic.min.isr": "1",
		"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4", "share.coordinator.state.topic.num.partitions": "4",
		"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "1000", "log.retention.check.interval.ms": "1000", "log.initial.task.delay.ms": "1000",
		"log.segment.delete.delay.ms": "1000", "log.cleaner.backoff.ms": "500", "log.cleaner.dedupe.buffer.size": "33554432",
		"broker.heartbeat.interval.ms": "500", "broker.session.timeout.ms": "3000",
	}
	if o.ZooKeeper {
		underZooKeeper(props, n, voters)
	}
	maps.Copy(props, o.Props)
	var b strings.Builder
	for k, v := range props {
		fmt.Fprintf(&b, "%s=%s\n", k, v)
	}
	return b.String()
}
