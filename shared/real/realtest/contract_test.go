//go:build real

package realtest

import (
	"testing"

	"example.com/paycast/shared/batch/batchtest"
	"example.com/paycast/shared/elastic/elastictest"
	"example.com/paycast/shared/kafka/kafkatest"
	"example.com/paycast/shared/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestApacheKafkaKeepsTheContract(t *testing.T) { kafkatest.Contract(t, Kafka(t)) }

func TestASubscriberWithAWindowKeepsItsPromisesOnApacheKafka(t *testing.T) {
	batchtest.Subscriber(t, Kafka(t))
}

func TestElasticsearchKeepsTheContract(t *testing.T) { elastictest.Contract(t, Elasticsearch(t)) }
