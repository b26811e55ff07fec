package real

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"
)

// KafkaVersion is the one that is fetched.
const KafkaVersion = "4.3.1"

// One broker that is its own controller. Its time-outs let a restart and a short session show within seconds.
var kafkaProperties = template.Must(template.New("").Parse(`
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{{.Controller}}
listeners=PLAINTEXT://127.0.0.1:{{.Port}},CONTROLLER://127.0.0.1:{{.Controller}}
advertised.listeners=PLAINTEXT://127.0.0.1:{{.Port}}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={{.Data}}
auto.create.topics.enable=false
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
`))

// The logging binding is in it because without one a fatal error ends Kafka without a word.
const kafkaProject = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>com.example.paycast</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>` + KafkaVersion + `</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId><version>2.25.4</version></dependency>
  </dependencies>
</project>`

// clusterID names the cluster in its data. There is only ever one on a directory.
const clusterID = "cGF5Y2FzdC1sb2NhbC1rYQ"

// Kafka is a broker that is not started yet.
type Kafka struct {
	Dir        string // configuration and data
	Port       int
	Controller int    // a second port, which the broker uses for itself
	Extra      string // further lines of server.properties; they win over ours
}

// Command fetches what is missing, prepares the directory and returns the broker's process, to be started once.
func (k Kafka) Command(ctx context.Context) (*exec.Cmd, error) {
	home, err := javaHome(ctx)
	if err != nil {
		return nil, err
	}
	libs, err := fetched(ctx, "kafka-"+KafkaVersion, kafkaProject, func(dir string) []string {
		return []string{"org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=" + dir}
	})
	if err != nil {
		return nil, err
	}
	properties, err := k.configure()
	if err != nil {
		return nil, fmt.Errorf("configuring Kafka in %s: %w", k.Dir, err)
	}
	java := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(context.WithoutCancel(ctx), filepath.Join(home, "bin", "java"), append([]string{
			"-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", filepath.Join(libs, "*")}, args...)...)
		cmd.Dir = k.Dir
		return cmd
	}
	if _, err := os.Stat(filepath.Join(k.Dir, "data", "meta.properties")); errors.Is(err, os.ErrNotExist) {
		format := java("kafka.tools.StorageTool", "format", "--ignore-formatted", "-t", clusterID, "-c", properties)
		if out, err := format.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("formatting Kafka's data in %s: %w: %s", k.Dir, err, out)
		}
	}
	return java("kafka.Kafka", properties), nil
}

func (k Kafka) configure() (file string, err error) {
	data := filepath.Join(k.Dir, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return "", err
	}
	var text bytes.Buffer
	if err := kafkaProperties.Execute(&text, map[string]any{"Port": k.Port, "Controller": k.Controller, "Data": data}); err != nil {
		return "", err
	}
	text.WriteString(k.Extra)
	file = filepath.Join(k.Dir, "server.properties")
	return file, os.WriteFile(file, text.Bytes(), 0o644)
}
