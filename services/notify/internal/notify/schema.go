package notify

import (
	"embed"
	"time"
)

//go:embed migrations/*.sql
var files embed.FS

// Status is where a command stands; see the package's comment.
type Status string

// The states.
const (
	Pending Status = "PENDING"
	Sending Status = "SENDING"
	Sent    Status = "SENT"
	Retry   Status = "RETRY"
	Unknown Status = "UNKNOWN"
	Failed  Status = "FAILED"
)

var statuses = []Status{Pending, Sending, Sent, Retry, Unknown, Failed}

// The kinds of messages.
const (
	kindPaid     = "PAID"
	kindCanceled = "CANCELED"
)

// command is one row. Everything that changes is changed by statements in claim.go; GORM only reads.
type command struct {
	CommandID         string `gorm:"primaryKey"`
	EventID           string
	OrderNo           string
	Kind              string
	Text              string
	Status            Status
	Attempts          int
	TakeoverCount     int
	NextAttemptAt     *time.Time
	LastErrorCode     *string
	ProviderMessageID *string
	CreatedAt         time.Time
	SentAt            *time.Time
}

func (command) TableName() string { return "t_notification_command" }
