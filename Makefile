# `make help` lists the targets. The two that matter first: `make demo` and `make test`.

GO        ?= go
BIN       := bin/mirrord
VERSION   ?= $(shell deploy/packaging/version.sh)
LDFLAGS   := -s -w -X mirrord/internal/daemon.version=$(VERSION)
GOLANGCI  := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
NFPM      := github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4
UNIT      := $(shell $(GO) list ./... 2>/dev/null | grep -v '/test/')
E2E_TIME  ?= 30m
E2E_TESTS ?= 3
FUZZTIME  ?= 30s

.PHONY: help build demo test unit e2e race lint gen fuzz storm bench package check stats need-go need-java need-kcat clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

need-go:
	@command -v $(GO) >/dev/null || { echo "Go 1.26 or newer is missing. Install it from your package manager or go.dev, then run make again." >&2; exit 1; }

need-java:
	@command -v java >/dev/null && command -v mvn >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq openjdk-17-jdk-headless maven; \
	  else \
	    echo "The tests run real Apache Kafka and need a JDK 17 or newer and Maven. On Debian: apt-get install -y openjdk-17-jdk-headless maven" >&2; exit 1; \
	  fi; }

need-kcat:
	@command -v kcat >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && apt-get install -y -qq kcat; \
	  else \
	    echo "A test reads with librdkafka and needs kcat. On Debian: apt-get install -y kcat" >&2; exit 1; \
	  fi; }

build: need-go ## build bin/mirrord, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/mirrord

demo: build ## the main story on two embedded clusters, in a minute
	$(BIN) demo

test: unit e2e ## all tests; fetches Go modules and, by Maven, Apache Kafka

unit: need-go ## fast tests: pure code, fakes
	$(GO) test -p 4 $(UNIT)

e2e: need-go need-java need-kcat ## tests on real Apache Kafka
	$(GO) test -timeout $(E2E_TIME) -parallel $(E2E_TESTS) ./test/...

race: need-go ## fast tests under the race detector
	$(GO) test -race $(UNIT)

lint: need-go ## style and import rules
	@test -z "$$(gofmt -l cmd internal test)" || { gofmt -l cmd internal test; exit 1; }
	$(GO) vet ./...
	$(GO) run $(GOLANGCI) run ./...

gen: need-go ## write the generated parts of docs/
	$(GO) generate ./...

fuzz: need-go ## fuzz what reads bytes from outside, FUZZTIME each
	@for pkg in recordbatch statestore kafka; do \
	  for f in $$($(GO) test -list '^Fuzz' ./internal/$$pkg | grep '^Fuzz'); do \
	    $(GO) test ./internal/$$pkg -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) || exit 1; done; done

storm: need-go need-java ## long runs with random faults: SEED=… ROUNDS=…
	MIRRORD_STORM=1 $(GO) test -timeout 4h -v -run 'Storm' ./test/e2e

bench: build need-java ## mirrord and MirrorMaker 2 side by side on the same brokers
	$(GO) run ./test/bench -mirrord $(BIN)

package: build ## .deb and .rpm into dist/, checked as far as this host has their tools
	mkdir -p dist && rm -f dist/*.deb dist/*.rpm
	for kind in deb rpm; do VERSION=$(VERSION) $(GO) run $(NFPM) package -f deploy/nfpm.yaml -p $$kind -t dist/ || exit 1; done
	deploy/packaging/verify.sh dist

check: lint build race test ## what CI runs
	git diff --exit-code

stats: ## sizes of files and functions
	@find cmd internal -name '*.go' ! -name '*_test.go' | xargs wc -l | sort -n | tail -25

clean: ## remove what was built
	rm -rf bin dist
