package embedded

import (
	"regexp"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// refuseImpossibleTopics lets the broker say that a topic's name is impossible, as Apache Kafka does, where kfake says that
// the topic is unknown. A question about several topics goes to kfake as it is.
func refuseImpossibleTopics(cluster *kfake.Cluster, host string, port int) {
	cluster.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked := r.(*kmsg.MetadataRequest)
		if len(asked.Topics) != 1 || asked.Topics[0].Topic == nil || possible(*asked.Topics[0].Topic) {
			return nil, nil, false
		}
		answer := asked.ResponseKind().(*kmsg.MetadataResponse)
		us := kmsg.NewMetadataResponseBroker() // the only one; its id and the controller's are 0
		us.Host, us.Port = host, int32(port)
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.ErrorCode = asked.Topics[0].Topic, kerr.InvalidTopicException.Code
		answer.Brokers, answer.Topics, answer.ControllerID = []kmsg.MetadataResponseBroker{us}, []kmsg.MetadataResponseTopic{topic}, us.NodeID
		return answer, nil, true
	})
}

func possible(name string) bool { return topicName.MatchString(name) && name != "." && name != ".." }
