// Search keeps an index of all orders that people can search. It is a projection: everything in it comes from events,
// and can be built anew.
package main

import (
	"example.com/paycast/services/search/internal/search"
	"example.com/paycast/shared/service"
)

func main() {
	service.Main("search",
		service.Command{Name: "serve", Help: "consume events and answer the API", Run: search.Serve},
		service.Command{Name: "migrate", Help: "bring the database up to date and make the index", Run: search.Migrate},
		service.Command{Name: "rebuild", Help: "build the index anew from payment's orders, while all goes on", Run: search.Rebuild},
	)
}
