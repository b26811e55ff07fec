package payment

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"example.com/paycast/shared/audit"
)

var (
	errNoIncident = &problem{http.StatusNotFound, "not-found", "there is no such incident"}
	errResolved   = &problem{http.StatusConflict, "conflict", "the incident is resolved already; show it to see by whom and why"}
)

// showIncident gives one incident, and who has done what about it.
func (s *server) showIncident(r *http.Request) (any, error) {
	id, err := incidentID(r)
	if err != nil {
		return nil, err
	}
	var i incident
	err = s.db.WithContext(r.Context()).Take(&i, "id = ?", id).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, errNoIncident
	}
	if err != nil {
		return nil, err
	}
	acts, err := audit.Of(r.Context(), s.db, incidentObject(id))
	return map[string]any{"incident": i.listed(), "audit": acts}, err
}

// resolve records that a person has settled an incident, and changes nothing else: the order stays as it is, and money that
// goes back is sent elsewhere. The same person with the same reason gets the same answer again; for anybody else it is
// resolved already, so that nobody's reason is dropped without a word.
func (s *server) resolve(r *http.Request) (any, error) {
	id, err := incidentID(r)
	if err != nil {
		return nil, err
	}
	by, err := audit.From(r)
	if err != nil {
		return nil, &problem{http.StatusBadRequest, "invalid", err.Error()}
	}
	const verb = "resolve"
	var i incident
	again, dry := false, audit.DryRun(r)
	err = audit.Act(r.Context(), s.db, by, verb, incidentObject(id), dry, func(tx *gorm.DB) (string, error) {
		i, again = incident{}, false
		// Two people at once stand in line here, and the second one finds it resolved.
		if err := tx.Clauses(clause.Locking{Strength: "NO KEY UPDATE"}).Take(&i, "id = ?", id).Error; err != nil {
			return "", err
		}
		if i.State == incidentResolved {
			acts, err := audit.Of(r.Context(), tx, incidentObject(id))
			if err != nil {
				return "", err
			}
			last := len(acts) - 1 // there is none when a hand has changed the row
			again = last >= 0 && acts[last].Verb == verb && acts[last].Actor == by.Actor && acts[last].Reason == by.Reason
			return "", errResolved
		}
		err := tx.Model(&i).Clauses(clause.Returning{}).
			Updates(map[string]any{"state": incidentResolved, "resolved_at": gorm.Expr("clock_timestamp()")}).Error
		return i.Kind + " of order " + i.OrderNo, err
	})
	switch {
	case errors.Is(err, gorm.ErrRecordNotFound):
		return nil, errNoIncident
	case again: // nothing was changed
	case err != nil:
		return nil, err
	case !dry:
		s.log.InfoContext(r.Context(), "incident resolved", "incident", id, "kind", i.Kind, "order_no", i.OrderNo, "actor", by.Actor)
	}
	return i.listed(), nil
}

func incidentID(r *http.Request) (int64, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return 0, errNoIncident
	}
	return id, nil
}

// incidentObject is an incident's name in the audit.
func incidentObject(id int64) string { return fmt.Sprintf("incident/%d", id) }

// listedIncident is an incident as operators see it, who do not come from its order.
type listedIncident struct {
	incident
	OrderNo    string     `json:"order_no"`
	ResolvedAt *time.Time `json:"resolved_at"`
}

func (i incident) listed() listedIncident {
	i.CreatedAt = i.CreatedAt.UTC()
	return listedIncident{i, i.OrderNo, utc(i.ResolvedAt)}
}
