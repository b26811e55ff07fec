package points

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"gorm.io/gorm"

	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/telemetry/echoroute"
)

const (
	usualLimit = 100
	maxLimit   = 500
)

// accountView is the answer of GET /accounts/{user_id}; openapi.yaml describes it and a test holds the two together.
type accountView struct {
	UserID  string      `json:"user_id"`
	Balance int64       `json:"balance"`
	Entries []entryView `json:"entries"`
	Next    string      `json:"next"`
}

type entryView struct {
	EventID   string    `json:"event_id"`
	OrderNo   string    `json:"order_no"`
	Kind      string    `json:"kind"`
	Points    int64     `json:"points"`
	CreatedAt time.Time `json:"created_at"`
}

type api struct {
	db  *gorm.DB
	log *slog.Logger
}

func routes(db *gorm.DB, log *slog.Logger) http.Handler {
	a := api{db, log}
	e := echo.New()
	e.Use(echoroute.Name)
	e.HTTPErrorHandler = a.answerError
	e.GET("/accounts/:user_id", a.getAccount)
	return e
}

func (a api) getAccount(c echo.Context) error {
	userID := c.Param("user_id")
	if userID == "" || len(userID) > 128 || !ops.IsText(userID) {
		return echo.NewHTTPError(http.StatusBadRequest, "user_id must be 1 to 128 bytes of text")
	}
	limit := usualLimit
	if s := c.QueryParam("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxLimit {
			return echo.NewHTTPError(http.StatusBadRequest, "limit must be between 1 and "+strconv.Itoa(maxLimit))
		}
		limit = n
	}
	var after int64
	if s := c.QueryParam("after"); s != "" {
		var err error
		if after, err = strconv.ParseInt(s, 10, 64); err != nil {
			return echo.NewHTTPError(http.StatusBadRequest, "after must be the next of a page before")
		}
	}
	view, err := a.account(c.Request().Context(), userID, after, limit)
	if err != nil {
		return err
	}
	ops.WriteJSON(c.Response(), http.StatusOK, view)
	return nil
}

// account reads the balance and a page of entries as they were at one moment: read apart, an entry could be newer than
// the balance that it is part of. Who has never been credited has nothing, which is no error: points
// come some time after the payment.
func (a api) account(ctx context.Context, userID string, after int64, limit int) (accountView, error) {
	view := accountView{UserID: userID, Entries: []entryView{}}
	var entries []entry
	err := a.db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Raw("SELECT balance FROM t_account WHERE user_id = ?", userID).Scan(&view.Balance).Error; err != nil {
			return err
		}
		return tx.Where("user_id = ? AND entry_id > ?", userID, after).Order("entry_id").Limit(limit).Find(&entries).Error
	}, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return view, err
	}
	for _, e := range entries {
		view.Entries = append(view.Entries, entryView{e.EventID, e.OrderNo, e.Kind, e.Points, e.CreatedAt.UTC()})
	}
	if len(entries) == limit {
		view.Next = strconv.FormatInt(entries[limit-1].EntryID, 10)
	}
	return view, nil
}

// answerError answers every error as a problem. What is not the client's doing is logged here, once, and not shown.
func (a api) answerError(err error, c echo.Context) {
	var he *echo.HTTPError
	switch {
	case !errors.As(err, &he):
		a.log.ErrorContext(c.Request().Context(), "answering", "path", c.Path(), "error", err)
		ops.Problem(c.Response(), http.StatusServiceUnavailable, "unavailable", "the database did not answer; try again")
	case he.Code == http.StatusBadRequest:
		ops.Problem(c.Response(), he.Code, "bad-parameter", fmt.Sprint(he.Message))
	default:
		ops.Problem(c.Response(), he.Code, "no-such-thing", "see openapi.yaml for what this service answers")
	}
}
