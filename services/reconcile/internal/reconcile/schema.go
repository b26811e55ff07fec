package reconcile

import (
	"embed"
	"time"

	"example.com/paycast/shared/postgres"
)

//go:embed migrations/*.sql
var files embed.FS

// Migrations is the schema of reconcile's own database.
var Migrations = []postgres.Set{postgres.Files("reconcile", files)}

type runRow struct {
	ID        string
	Status    string
	StartedAt time.Time `gorm:"->"` // the database's clock
	EndedAt   *time.Time
	Checked   *string
	Error     *string
}

func (runRow) TableName() string { return "t_reconcile_run" }

type itemRow struct {
	RunID  string
	ItemNo int
	Kind   string
	Grp    string
	// The column names are those of Finding.
	OrderNo string
	EventID string
	Detail  string
	State   string
}

func (itemRow) TableName() string { return "t_reconcile_item" }

// The states of a run.
const (
	Running = "running"
	Agree   = "agree"
	Differ  = "differ"
	Failed  = "failed"
)
