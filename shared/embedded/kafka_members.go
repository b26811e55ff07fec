package embedded

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// removeTheDead removes group members that have died while they waited for the answer to their join. kfake watches a
// member's session from that answer on, and there is nobody to get it: the member would keep its partitions for ever, and
// nobody would read them. Apache Kafka watches every member from the end of the rebalance. So who has partitions, and sends
// no first heartbeat within its session timeout, leaves. The heartbeats of the others are our clock: without any there is
// nobody to get the partitions, and a broker that is closed leaves nothing running.
func removeTheDead(cluster *kfake.Cluster, addr string) {
	w := watch{addr: addr, sessions: map[member]time.Duration{}, silent: map[member]time.Time{}}
	for key, see := range map[kmsg.Key]func(kmsg.Request){
		kmsg.JoinGroup: w.joins, kmsg.SyncGroup: w.syncs, kmsg.Heartbeat: w.beats, kmsg.LeaveGroup: w.leaves,
	} {
		cluster.ControlKey(key.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			cluster.KeepControl()
			see(r)
			return nil, nil, false
		})
	}
}

type member struct{ group, id string }

// watch is used by kfake's one loop alone.
type watch struct {
	addr     string
	sessions map[member]time.Duration // of those that have joined and have not sent a heartbeat since
	silent   map[member]time.Time     // of those of them that have partitions: when they are dead
}

func (w *watch) joins(r kmsg.Request) {
	join := r.(*kmsg.JoinGroupRequest)
	m := member{join.Group, join.MemberID}
	delete(w.silent, m)
	w.sessions[m] = time.Duration(join.SessionTimeoutMillis) * time.Millisecond
}

// syncs begins the watch of all members when it is the leader who syncs: its request names them.
func (w *watch) syncs(r kmsg.Request) {
	request := r.(*kmsg.SyncGroupRequest)
	for _, given := range request.GroupAssignment {
		m := member{request.Group, given.MemberID}
		if session, joined := w.sessions[m]; joined {
			w.silent[m] = time.Now().Add(session)
		}
	}
}

func (w *watch) beats(r kmsg.Request) {
	beat := r.(*kmsg.HeartbeatRequest)
	w.forget(member{beat.Group, beat.MemberID}) // kfake watches it from now on
	for m, dead := range w.silent {
		if m.group == beat.Group && time.Now().After(dead) {
			w.forget(m)
			go w.remove(m)
		}
	}
}

func (w *watch) leaves(r kmsg.Request) {
	leave := r.(*kmsg.LeaveGroupRequest)
	w.forget(member{leave.Group, leave.MemberID})
	for _, leaving := range leave.Members {
		w.forget(member{leave.Group, leaving.MemberID})
	}
}

func (w *watch) forget(m member) {
	delete(w.silent, m)
	delete(w.sessions, m)
}

// remove lets a member leave that has been silent.
func (w *watch) remove(m member) {
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
