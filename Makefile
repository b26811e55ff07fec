# Everything goes through Go and this file. No service is named here: what go.work uses takes part.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MODULES := $(shell sed -nE 's#^(use)?[[:space:]]+\./##p' go.work)
# The benchmark is left out: nobody else needs it, and it compiles what it compares us with.
PROGRAMS := $(patsubst %,./%/...,$(filter-out deploy/bench,$(filter services/% deploy/% tools/%,$(MODULES))))
LINTER := bin/golangci-lint
# Their tests read the whole repository, which Go's test cache does not notice.
READERS := docs/check tools/newservice
# How long one package's tests may take. It is there for tests that hang; a slow machine is not to reach it.
LIMIT := 40m

# PARTS=real runs Apache Kafka and Elasticsearch themselves, which needs Java 17 and Maven; ARGS go to paycast-local.
PARTS ?= embedded
LOCAL_FLAGS := --kafka $(PARTS) --search $(PARTS) $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help demo local up down test-compose build test test-real test-template verify lint tidy-check alone flow new-service bench-relay bench-consumer clean go cc

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## the whole story on this machine, checked; ends with "agree" (PARTS=real: on the real Kafka and Elasticsearch)
	@bin/paycast-local demo $(LOCAL_FLAGS)

local: build ## the whole system, until Ctrl-C; prints addresses and lines to try (PARTS=real as above)
	@exec bin/paycast-local up $(LOCAL_FLAGS)

up: ## the whole system under Docker Compose; waits until all is ready and prints the addresses
	@cd deploy/compose && docker compose up -d --wait && docker compose ps --format 'table {{.Service}}\t{{.Status}}\t{{.Ports}}' && \
	  printf '\n%s\n%s\n' "The story:     docker compose -f deploy/compose/compose.yaml logs demo" \
	    "The ops token: docker compose -f deploy/compose/compose.yaml cp relay:/run/secrets/ops_token - | tar xO"

down: ## stop what `make up` has started; its data stays (docker compose down -v in deploy/compose removes it)
	@cd deploy/compose && docker compose down

test-compose: ## the Compose project once through, with processes killed under load (Linux, root or rights to kill)
	deploy/compose/e2e/run

build: go ## all programs, into bin/
	@test -x bin/paycast-local || echo "building; the first time compiles everything and takes some minutes"
	@go build -o bin/ $(PROGRAMS)

# Three packages at once, also on two cores: the tests wait for servers for a good part of their time.
test: go cc ## all tests of all modules, with the race detector
	go test -race -p 3 -timeout $(LIMIT) $(patsubst %,./%/...,$(filter-out $(READERS),$(MODULES)))
	go test -race -timeout $(LIMIT) -count=1 $(READERS:%=./%/...)

test-template: go ## copies of the template build, and pass its tests and the conformance suite
	go test -tags template -count=1 -timeout $(LIMIT) -run TestTwoCopies -v ./tools/newservice

test-real: go cc ## contract and end-to-end tests on the real Kafka and Elasticsearch (Java 17; Maven the first time)
	go test -race -tags real -count=1 -p 1 -timeout $(LIMIT) ./shared/real/... ./deploy/local/e2e/...

verify: go cc ## the long runs
	go test -race -tags verify -count=1 -timeout 2h $(MODULES:%=./%/...)

lint: go $(LINTER) ## go vet, golangci-lint and gofmt
	@for m in $(MODULES); do echo "lint $$m"; (cd $$m && go vet ./... && $(CURDIR)/$(LINTER) run ./...); done

$(LINTER): tools/go.mod tools/go.sum
	GOWORK=off go -C tools build -o $(CURDIR)/$(LINTER) github.com/golangci/golangci-lint/v2/cmd/golangci-lint

tidy-check: go ## go.mod and go.sum of every module are what go mod tidy makes of them
	@for m in $(MODULES) tools; do echo "tidy $$m"; GOWORK=off go -C $$m mod tidy -diff; done

alone: go cc ## every service builds and tests without the workspace
	@for m in $(wildcard services/*/); do GOWORK=off go -C $$m build ./...; GOWORK=off go -C $$m test -race -timeout $(LIMIT) ./...; done

flow: ## the way of one payment through the code, in nine stops
	@find services shared -name '*.go' | xargs awk ' \
	  match($$0, "// FLOW [1-9]/9") { stop = substr($$0, RSTART + 8, 3) } \
	  stop && /^func / { at = FILENAME ":" FNR; sub(/^func (\([^)]*\) )?/, ""); sub(/[(\[].*/, ""); \
	    printf "%s  %-24s %s\n", stop, $$0, at; stop = "" }' | sort

bench-relay: go ## outbox relays beside each other, into docs/bench (QUICK=1: two cases, into .run/bench; PARTS=real: on Apache Kafka too)
	@go build -o bin/paycast-bench ./deploy/bench
	@bin/paycast-bench relay-bench $(if $(QUICK),-quick -out .run/bench,-out docs/bench) $(if $(BROKERS),-brokers $(BROKERS),$(if $(filter real,$(PARTS)),-real))

bench-consumer: go ## consumers beside each other, into docs/bench (QUICK=1: the two ratios, into .run/bench)
	@go build -o bin/paycast-bench ./deploy/bench
	@bin/paycast-bench consumer-bench $(if $(QUICK),-quick -out .run/bench,-out docs/bench)

new-service: go ## a copy of the template that takes part at once: NAME=coupon EVENT=PaymentSucceeded (docs/template.md)
	@go run ./tools/newservice "$${NAME:-}" "$${EVENT:-}"

clean: ## remove what was built and the local stack's data
	rm -rf bin .run

go:
	@command -v go > /dev/null || { echo "Go is missing: install the version in go.work from https://go.dev/dl"; exit 1; }

cc:
	@command -v "$${CC:-cc}" > /dev/null || command -v gcc > /dev/null || \
	  { echo "The race detector needs a C compiler: install gcc or clang (on Debian: apt-get install gcc)"; exit 1; }
