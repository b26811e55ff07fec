package embedded

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// removeTheDead removes group members that have died while they waited for the answer to their join. kfake watches a
// member's session from that answer on, and there is nobody to get it: the member would keep its partitions for ever, and
// nobody would read them. Apache Kafka watches every member from the end of the rebalance. So whom the leader gives
// partitions, and who is not heard within its session timeout after that, leaves.
func removeTheDead(cluster *kfake.Cluster, addr string) {
	w := watch{cluster: cluster, addr: addr, sessions: map[member]time.Duration{}, silent: map[member]*time.Timer{}}
	for key, see := range map[kmsg.Key]func(kmsg.Request){
		kmsg.JoinGroup: w.joins, kmsg.SyncGroup: w.syncs, kmsg.Heartbeat: w.beats,
	} {
		cluster.ControlKey(key.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			see(r)
			return nil, nil, false
		})
	}
}

type member struct{ group, id string }

type watch struct {
	cluster  *kfake.Cluster
	addr     string
	mu       sync.Mutex
	sessions map[member]time.Duration // of those that have joined and have no partitions yet
	silent   map[member]*time.Timer   // of those that have partitions and have not spoken since
}

func (w *watch) joins(r kmsg.Request) {
	join := r.(*kmsg.JoinGroupRequest)
	m := member{join.Group, join.MemberID}
	w.speaks(m)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sessions[m] = time.Duration(join.SessionTimeoutMillis) * time.Millisecond
}

func (w *watch) beats(r kmsg.Request) {
	beat := r.(*kmsg.HeartbeatRequest)
	w.speaks(member{beat.Group, beat.MemberID})
}

// syncs begins the watch when it is the leader who syncs: its request names all members.
func (w *watch) syncs(r kmsg.Request) {
	request := r.(*kmsg.SyncGroupRequest)
	from := member{request.Group, request.MemberID}
	w.speaks(from)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, given := range request.GroupAssignment {
		m := member{request.Group, given.MemberID}
		if session, joined := w.sessions[m]; joined && m != from {
			w.silent[m] = time.AfterFunc(session, func() { w.remove(m) })
		}
		delete(w.sessions, m)
	}
}

func (w *watch) speaks(m member) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if timer := w.silent[m]; timer != nil {
		timer.Stop()
		delete(w.silent, m)
	}
}

// remove lets a member leave that has been silent. In a rebalance it is not for us: kfake removes who does not join.
func (w *watch) remove(m member) {
	if info := w.cluster.GroupInfo(m.group); info == nil || info.State != "Stable" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(w.addr))
	if err != nil {
		slog.Error("removing a dead group member", "group", m.group, "member", m.id, "error", err)
		return
	}
	defer client.Close()
	leave, leaving := kmsg.NewPtrLeaveGroupRequest(), kmsg.NewLeaveGroupRequestMember()
	leave.Group, leaving.MemberID = m.group, m.id
	leave.Members = append(leave.Members, leaving)
	answer, err := leave.RequestWith(ctx, client)
	if err == nil && len(answer.Members) == 1 && answer.Members[0].ErrorCode == 0 { // otherwise it, or the broker, has gone by itself
		slog.Warn("a group member has died while it waited to join; it has left now", "group", m.group, "member", m.id)
	}
}
