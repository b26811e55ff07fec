package realtest

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/paycast/shared/kafka/kafkatest"
	"example.com/paycast/shared/real"
)

// Kafka starts Apache Kafka for the test.
func Kafka(t *testing.T) kafkatest.Server {
	t.Helper()
	return startKafka(t, real.Kafka{Port: freePort(t), Controller: freePort(t)})
}

func startKafka(t *testing.T, k real.Kafka) kafka {
	t.Helper()
	k.Dir = t.TempDir()
	addr := fmt.Sprintf("127.0.0.1:%d", k.Port)
	return kafka{addr: addr, process: start(t, k.Command, func() error { return pingKafka(t, addr) })}
}

type kafka struct {
	*process
	addr string
}

func (k kafka) Brokers() string { return k.addr }

func pingKafka(t *testing.T, addr string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	return client.Ping(ctx)
}

// Elasticsearch starts Elasticsearch for the test and returns its URL.
func Elasticsearch(t *testing.T) (url string) {
	t.Helper()
	port := freePort(t)
	url = fmt.Sprintf("http://127.0.0.1:%d", port)
	e := real.Elasticsearch{Dir: t.TempDir(), Port: port, Transport: freePort(t)}
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	start(t, e.Command, func() error {
		req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, url+"/_cluster/health?wait_for_status=yellow&timeout=1s", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("health answers %s", resp.Status)
		}
		return nil
	})
	return url
}
