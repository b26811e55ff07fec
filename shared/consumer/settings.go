package consumer

import (
	"context"

	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/settings"
)

// settings reports what the group member and its retry lane run with. A row that is archived is not looked for when a
// record comes from the topic of all groups, so the log's window is the archive's; without an archive it is for ever.
func (c *consumer) settings(_ context.Context, to *settings.Report) error {
	topics := c.topics()
	group := kafka.GroupSettings(c.Group, c.Session, topics...)
	group.Deadline = settings.Duration(c.HandlerTimeout)
	to.Groups = append(to.Groups, group)
	to.Leases = append(to.Leases, settings.LeaseOf("retry lane", c.rule()))
	to.Windows = append(to.Windows, settings.Window{Of: "consume log", Keeps: settings.Duration(c.ArchiveAfter)})
	to.Horizon = settings.Duration(c.ReplayHorizon)
	to.Kafka = func(ctx context.Context) (settings.Kafka, error) { return kafka.Seen(ctx, c.Brokers, topics...) }
	return nil
}
