# Everything here needs Go alone; race also needs a C compiler.

GO         ?= go
FUZZTIME   ?= 10s
SECONDS    ?= 900
BENCHFLAGS ?=
ROUNDS     ?= 1000
# The versions of tools are pinned in .ci/lint.mod.
STATICCHECK = $(GO) tool -modfile=.ci/lint.mod staticcheck

.PHONY: run build test race conformance fuzz soak bench lint vulnerabilities fmt clean

run: ## the server, on the configuration that it finds or on its defaults
	@$(GO) run ./cmd/loquat serve

build: ## bin/loquat
	$(GO) build -trimpath -o bin/loquat ./cmd/loquat

test:
	$(GO) test -timeout 15m ./...

race: ## -short leaves out what only takes longer under the race detector
	$(GO) test -race -short -timeout 15m ./...

conformance: ## the recordings and tables of $$LOQUAT_SHARED against a running server
	$(GO) test -count=1 -timeout 10m -v -run '^TestConformance' ./internal/e2e/conformance

crash: ## kill -9 under load, ROUNDS times; LOQUAT_CRASH_SEED repeats a run's choices
	LOQUAT_CRASH_ROUNDS=$(ROUNDS) $(GO) test -count=1 -timeout 90m -v -run '^TestCrash$$' ./internal/e2e/crash

fuzz: ## every fuzz test for FUZZTIME
	@for pkg in $$($(GO) list ./...); do \
		names=$$($(GO) test -list '^Fuzz' $$pkg) || exit 1; \
		for name in $$(echo "$$names" | grep '^Fuzz'); do \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done

soak: ## everything at once for SECONDS, over bad lines, under the race detector
	LOQUAT_SOAK_SECONDS=$(SECONDS) $(GO) test -count=1 -timeout $$(($(SECONDS) + 1200))s -v -run '^TestSoak$$' ./internal/e2e/crash

bench: ## side by side with other clients; BENCHFLAGS='-only decoder' for a part
	$(GO) -C bench run . $(BENCHFLAGS)

lint:
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt -w these:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags crashpoints ./internal/store ./cmd/loquat
	$(GO) -C bench vet ./...
	$(STATICCHECK) ./...
	$(STATICCHECK) -tags crashpoints ./internal/store

vulnerabilities: ## of the dependencies, as far as they are known and called
	.ci/vulnerabilities

fmt:
	gofmt -w .

clean:
	rm -rf bin dist
