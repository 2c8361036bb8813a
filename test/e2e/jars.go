package e2e

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

//go:embed testdata/pom.xml
var pom []byte

var jarsMu sync.Mutex

// Jars returns the folder with the jars of an Apache Kafka release and fetches them with Maven when the cache lacks
// them. MIRRORD_KAFKA_JARS names another cache folder (one sub-folder a release).
func Jars(version string) (string, error) {
	jarsMu.Lock()
	defer jarsMu.Unlock()
	cache := os.Getenv("MIRRORD_KAFKA_JARS")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(user, "mirrord-kafka")
	}
	dir := filepath.Join(cache, version)
	if found, _ := filepath.Glob(filepath.Join(dir, "kafka_2.13-*.jar")); len(found) > 0 {
		return dir, nil
	}
	return dir, fetchJars(version, dir)
}

func fetchJars(version, dir string) error {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is missing: install a JDK 17 or newer and Maven, on Debian: apt-get install -y openjdk-17-jdk-headless maven", tool)
		}
	}
	work, err := os.MkdirTemp("", "kafka-pom-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "pom.xml"), pom, 0o644); err != nil {
		return err
	}
	partial := dir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	mvn := exec.Command("mvn", "-q", "-B", "-Dkafka.version="+version, "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+partial)
	mvn.Dir = work
	if out, err := mvn.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch Kafka %s with Maven: %w\n%s", version, err, out)
	}
	return os.Rename(partial, dir)
}
