package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// startZooKeeper starts one server, of the release the brokers come with, and waits until it listens: a broker that is
// earlier ends.
func (j *jvm) startZooKeeper(ctx context.Context, addr string) (err error) {
	dir := filepath.Join(j.dir, "zookeeper")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "zoo.cfg")
	lines := fmt.Sprintf("dataDir=%s\nclientPortAddress=%s\nclientPort=%s\ntickTime=500\nmaxClientCnxns=0\nadmin.enableServer=false\n", dir, host, port)
	if err := os.WriteFile(file, []byte(lines), 0o644); err != nil {
		return err
	}
	cmd := exec.Command("java", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"org.apache.zookeeper.server.ZooKeeperServerMain", file)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CLASSPATH="+j.jars+"/*")
	if j.zookeeper, err = startProcess(cmd, filepath.Join(dir, "log")); err != nil {
		return err
	}
	return awaitListener(ctx, addr)
}

func awaitListener(ctx context.Context, addr string) error {
	for {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// underZooKeeper turns the properties of a KRaft node into those of a broker that only ZooKeeper binds to its cluster.
func underZooKeeper(props map[string]string, n *Node, addr string) {
	for _, key := range []string{"process.roles", "node.id", "controller.quorum.voters", "controller.listener.names"} {
		delete(props, key)
	}
	props["broker.id"], props["zookeeper.connect"] = fmt.Sprint(n.ID), addr
	props["listeners"] = strings.TrimSuffix(props["listeners"], ",CONTROLLER://"+n.voter)
	props["zookeeper.session.timeout.ms"] = "6000"
}
