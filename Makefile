# These targets need only Go; race also needs a C compiler. With Node.js 20 or newer, the web
# client is built too.

GO         ?= go
FUZZTIME   ?= 10s
SECONDS    ?= 900
BENCHFLAGS ?=
SIMULATEFLAGS ?=
RELEASEFLAGS ?=
MUTANTFLAGS ?=
PACKAGES   ?= internal/backoff internal/ratelimit internal/ui internal/loop
ROUNDS     ?= 1000
FAILOVERS  ?= 10
# Everything is built as releases are, so that the program, its tests, the checks and the packages share what is compiled.
export CGO_ENABLED = 0
export GOFLAGS := -trimpath $(GOFLAGS)

# The versions of tools are pinned in .ci/lint.mod and .ci/s3.mod.
STATICCHECK = $(GO) tool -modfile=.ci/lint.mod staticcheck
OBJECTS     = $$($(GO) tool -modfile=.ci/s3.mod -n versitygw)

.PHONY: help web run build test e2e browser pictures race conformance crash backups migration postgres nodes network failover s3 fuzz together bench mutants lint simulate vulnerabilities release packages fmt clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {gsub(/\$$\$$/, "$$"); printf "%-16s %s\n", $$1, $$2}' Makefile

web: ## build the web client, if Node.js is there
	@web/make.sh

run: web ## run the server with the configuration that it finds or with defaults
	@$(GO) run ./cmd/loquat serve

build: web ## build bin/loquat
	$(GO) build -o bin/loquat ./cmd/loquat

# The packages whose tests take longest begin, so that none of them runs alone at the end. Many tests wait for a timeout or
# for a process, so more of them run at a time than there are processors.
PARALLEL = $$(n=$$(getconf _NPROCESSORS_ONLN); [ $$n -lt 8 ] || n=8; echo $$((2 * n)))
LONGEST = ./internal/store/postgres ./internal/store/sqlite ./cmd/loquat ./internal/migrate ./internal/chat

test: build ## run the tests, but for those of internal/e2e
	@web/make.sh --test
	$(GO) test -timeout 15m -parallel $(PARALLEL) $(LONGEST) $$($(GO) list ./... | grep -v /internal/e2e/)
	@if [ -d node_modules ]; then LOQUAT_BIN=$(CURDIR)/bin/loquat npm test --workspaces --if-present; fi

browser: build ## run the tests of the page in Chromium and Firefox
	@web/make.sh --test
	@LOQUAT_PROGRAM=$(CURDIR)/bin/loquat npm run browser -w web

pictures: build ## make the pictures of docs/pictures.md, those of the web client in Chromium
	@web/make.sh --test
	@LOQUAT_PROGRAM=$(CURDIR)/bin/loquat npm run pictures -w web
	$(GO) test -count=1 -run '^TestPicture$$' ./internal/e2e/terminal -picture $(CURDIR)/docs/pictures/terminal.svg

# The servers of these packages are built without the race detector: they measure, are killed under load, or run the
# commands of the documentation.
UNRACED = access|backups|bridge|crash|data|docs|failover|load|monitoring|network|nodes|plugins|scale|terminal|together|upgrade

# Of these packages, the race detector's run leaves out what is slow.
SHORTENED = browser|openai

e2e: web ## run the tests of the whole program that race leaves out
	$(GO) test -timeout 15m $$($(GO) list ./... | grep -E '/internal/e2e/($(UNRACED)|$(SHORTENED))$$')

# SQLite is left out, as in RaceFlags of internal/e2e/binary, which says why.
race: ## run the tests under the race detector; -short skips slow ones
	CGO_ENABLED=1 $(GO) test -race -gcflags=modernc.org/sqlite/lib=-race=false -short -timeout 15m $$($(GO) list ./... | grep -Ev '/internal/e2e/($(UNRACED))$$')

conformance: ## run the recordings and tables of $$LOQUAT_SHARED against a server
	$(GO) test -count=1 -timeout 10m -v -run '^TestConformance' ./internal/e2e/conformance

crash: ## kill the server under load ROUNDS times; LOQUAT_CRASH_SEED repeats a run
	LOQUAT_CRASH_ROUNDS=$(ROUNDS) $(GO) test -count=1 -timeout 90m -v -run '^TestCrash$$' ./internal/e2e/crash

backups: ## kill servers and the processes that back them up ROUNDS times, and copy a day of 1,000,000 events
	LOQUAT_TEST_S3=$(OBJECTS) LOQUAT_BACKUP_ROUNDS=$(ROUNDS) LOQUAT_BACKUP_EVENTS=1000000 \
		$(GO) test -count=1 -timeout 180m -v -run '^Test(KilledBackups|Day)$$' ./internal/e2e/backups ./internal/backup

migration: ## move a store of 1,000,000 events to PostgreSQL and back, and kill moves ROUNDS times
	LOQUAT_MIGRATE_SESSIONS=10000 LOQUAT_MIGRATE_ROUNDS=$(ROUNDS) $(GO) test -count=1 -timeout 600m -v -run '^Test(Killed)?Migration$$' ./internal/e2e/data

postgres: ## run the tests that matter with the store in PostgreSQL, which must be installed
	LOQUAT_TEST_STORE=postgres LOQUAT_CRASH_ROUNDS=$${LOQUAT_CRASH_ROUNDS:-8} $(GO) test -count=1 -timeout 10m \
		-run '^(TestModel|TestAsset.*|TestUsedAssetsStay|TestUploadsThatNobodyAttaches|TestCrash|TestConformance.*|TestOpenResponses|TestBackgroundResponses)$$' \
		./internal/chat ./internal/e2e/crash ./internal/e2e/conformance ./internal/e2e/openai
	LOQUAT_TEST_STORE=postgres LOQUAT_LOAD_SECONDS=$${LOQUAT_LOAD_SECONDS:-5} $(GO) test -count=1 -timeout 10m -v -short -run '^TestManyFollowers$$' ./internal/e2e/load

failover: ## let the primary of a PostgreSQL cluster fail FAILOVERS times; needs PostgreSQL, Patroni, etcd and HAProxy
	LOQUAT_FAILOVERS=$(FAILOVERS) $(GO) test -count=1 -timeout 60m -v ./internal/e2e/failover

nodes: ## kill one of three servers on one database every 20 s, for SECONDS, while 300 replies stream
	LOQUAT_NODES_SECONDS=$(SECONDS) LOQUAT_NODES_STREAMS=$${LOQUAT_NODES_STREAMS:-300} LOQUAT_NODES_KILL_SECONDS=$${LOQUAT_NODES_KILL_SECONDS:-20} \
		$(GO) test -count=1 -timeout $$(($(SECONDS) + 1200))s -v -run '^TestKilledNodes$$' ./internal/e2e/nodes

network: ## cut, stall and slow the network of three servers on one database for ROUNDS
	LOQUAT_NETWORK_ROUNDS=$(ROUNDS) $(GO) test -count=1 -timeout 3h -v -run '^TestNetworkFaults$$' ./internal/e2e/network

s3: ## run the tests of images in an S3-compatible store; builds its server for minutes, once
	LOQUAT_TEST_S3=$(OBJECTS) $(GO) test -count=1 -timeout 10m ./internal/asset/s3 ./internal/backup ./internal/migrate ./internal/e2e/backups
	LOQUAT_TEST_S3=$(OBJECTS) $(GO) test -count=1 -timeout 10m -run '^Test(ImagesInABucket|MovedImages|BucketThatRefuses)$$' ./internal/e2e/data

fuzz: ## run every fuzz test for FUZZTIME
	@for pkg in $$($(GO) list ./...); do \
		names=$$($(GO) test -list '^Fuzz' $$pkg) || exit 1; \
		for name in $$(echo "$$names" | grep '^Fuzz'); do \
			$(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done

together: ## run everything at once for SECONDS, embedded and with three nodes, and kill all that it depends on; LOQUAT_TOGETHER_SEED repeats a run
	LOQUAT_TOGETHER_SECONDS=$(SECONDS) $(GO) test -count=1 -timeout $$((3 * $(SECONDS) + 1800))s -v -run '^TestTogether$$' ./internal/e2e/together

bench: ## run the benchmarks; BENCHFLAGS='-only decoder' runs a part
	$(GO) -C bench run . $(BENCHFLAGS)

mutants: ## change the code of PACKAGES in thousands of ways, and list the changes that no test notices
	@code=0; for folder in $(PACKAGES); do $(GO) -C bench run ./mutants -accepted mutants/accepted.txt $(MUTANTFLAGS) ../$$folder || code=$$?; done; exit $$code

simulate: ## show what 10 million sessions in cells need; SIMULATEFLAGS='-help' lists the assumptions
	@$(GO) run ./internal/cells $(SIMULATEFLAGS)

lint: ## format, vet and static checks, and the types of everything on Windows and macOS too
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt -w these:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags crashpoints ./internal/store ./cmd/loquat
	$(GO) -C bench vet ./...
	$(GO) -C release vet ./...
	$(STATICCHECK) ./...
	$(STATICCHECK) -tags crashpoints ./internal/store
	@web/make.sh --test
	@if [ -d node_modules ]; then npm run check --workspaces --if-present; fi
	$(GO) -C release run ./cross .. windows/amd64 windows/arm64 darwin/amd64 darwin/arm64

release: web ## build archives, packages and the image of all platforms into dist/
	$(GO) -C release run . $(RELEASEFLAGS)

packages: web ## build a release for this platform twice, and try the packages and the image; as root
	$(GO) -C release test -count=1 -timeout 20m ./...

vulnerabilities: ## report known vulnerabilities that the code can reach, and those of npm packages
	.ci/vulnerabilities && code=0 || code=$$?; .ci/npm-vulnerabilities.mjs && exit $$code

fmt:
	gofmt -w .

clean:
	rm -rf bin dist node_modules/.loquat-* internal/web/dist/*
