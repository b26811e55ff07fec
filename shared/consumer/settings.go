package consumer

import (
	"context"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/settings"
)

// settings reports what the group member and its retry lane run with. The consume log is never cut: what
// its archive holds is still known on every road by which so old a copy can come.
func (c *consumer) settings(_ context.Context, to *settings.Report) error {
	group := kafka.GroupSettings(c.Group, c.Session, event.Topic, event.RedeliveryTopic(c.Group))
	group.Deadline = settings.Duration(c.HandlerTimeout)
	to.Groups = append(to.Groups, group)
	to.Leases = append(to.Leases, settings.LeaseOf("retry lane", c.rule()))
	to.Windows = append(to.Windows, settings.Window{Of: "consume log"})
	return nil
}
