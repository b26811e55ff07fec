package real

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// ElasticsearchVersion is the one that is fetched.
const ElasticsearchVersion = "8.19.7"

// The artifact is Elastic's own distribution for integration tests: the real server without a JDK and with few modules.
const elasticsearchArtifact = "org.elasticsearch.distribution.integ-test-zip:elasticsearch:" + ElasticsearchVersion + ":zip"

const emptyProject = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>com.example.paycast</groupId><artifactId>elasticsearch</artifactId><version>1</version><packaging>pom</packaging>
</project>`

const elasticsearchYML = `cluster.name: paycast-local
node.name: one
path.data: %[1]s/data
path.logs: %[1]s/logs
network.host: 127.0.0.1
http.port: %[2]d
transport.port: %[3]d
discovery.type: single-node
xpack.security.enabled: false
cluster.routing.allocation.disk.threshold_enabled: false
action.destructive_requires_name: true
`

// Elasticsearch is a node that is not started yet.
type Elasticsearch struct {
	Dir       string // configuration, data and logs
	Port      int
	Transport int // a second port, which the node uses for itself
}

// Command fetches what is missing, prepares the directory and returns the node's process, to be started once.
func (e Elasticsearch) Command(ctx context.Context) (*exec.Cmd, error) {
	java, err := javaHome(ctx)
	if err != nil {
		return nil, err
	}
	unpacked, err := fetched(ctx, "elasticsearch-"+ElasticsearchVersion, emptyProject, func(dir string) []string {
		return []string{"org.apache.maven.plugins:maven-dependency-plugin:3.6.1:unpack", "-Dartifact=" + elasticsearchArtifact, "-DoutputDirectory=" + dir}
	})
	if err != nil {
		return nil, err
	}
	home := filepath.Join(unpacked, "elasticsearch-"+ElasticsearchVersion)
	if err := e.configure(home); err != nil {
		return nil, fmt.Errorf("configuring Elasticsearch in %s: %w", e.Dir, err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "bash", filepath.Join(home, "bin", "elasticsearch"))
	cmd.Dir = e.Dir
	// A clean environment: its scripts obey many variables, and ours are not meant for them.
	cmd.Env = []string{
		"PATH=/usr/bin:/bin", "HOME=" + e.Dir, "HOSTNAME=localhost", "ES_JAVA_HOME=" + java,
		"ES_PATH_CONF=" + filepath.Join(e.Dir, "config"), "ES_TMPDIR=" + filepath.Join(e.Dir, "tmp"),
		"ES_JAVA_OPTS=-Xms512m -Xmx512m -XX:TieredStopAtLevel=1 -XX:-AlwaysPreTouch",
	}
	cmd.SysProcAttr = notRoot()
	return cmd, nil
}

func (e Elasticsearch) configure(home string) error {
	for _, dir := range []string{"config", "data", "logs", "tmp"} {
		if err := os.MkdirAll(filepath.Join(e.Dir, dir), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"jvm.options", "log4j2.properties"} {
		text, err := os.ReadFile(filepath.Join(home, "config", name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(e.Dir, "config", name), text, 0o644); err != nil {
			return err
		}
	}
	text := fmt.Sprintf(elasticsearchYML, e.Dir, e.Port, e.Transport)
	return os.WriteFile(filepath.Join(e.Dir, "config", "elasticsearch.yml"), []byte(text), 0o644)
}
