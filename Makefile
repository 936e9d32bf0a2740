# Every target does its own set-up: scripts/go is a Go that is new enough, brought into .tools/ if there is none.
# Variables: ARGS goes to the demo (ARGS=--fresh starts over), to test (packages), to bench, and to wheel.
# RUNS and SEED (of a single run) go to soak, SEEDS and FROM to sim.

GO    := scripts/go
BUILD := -trimpath -tags urfave_cli_no_docs

.DEFAULT_GOAL := help
.PHONY: help build wheel test test-slurm bench soak sim sim-faults sim-accuracy lint demo clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

build: ## build bin/daisy-submit, bin/daisy-worker and bin/nuclei
	@mkdir -p bin
	$(GO) build $(BUILD) -o bin/ ./cmd/daisy-submit ./cmd/daisy-worker ./examples/nuclei

wheel: ## make Python wheels with the programs in dist/, one a platform (ARGS=linux-x86_64: only that)
	python3 scripts/wheel.py $(ARGS)

test: ## run all tests, with the race detector
	@scripts/test $(ARGS)

test-slurm: ## run the tests on a real Slurm, which they start themselves (root, Debian's packages)
	@scripts/test-slurm $(ARGS)

bench: ## measure, and print each figure beside what it should be
	$(GO) run ./internal/bench $(ARGS)

soak: ## kill and resume the demo at random moments, 200 runs (RUNS=20: only so many)
	DAISY_SOAK=$(or $(RUNS),200) DAISY_SOAK_SEED=$(SEED) $(GO) test ./e2e -run '^TestTheDemoThatIsKilledAgainAndAgain' -timeout 0 -count 1 -v

sim: ## simulate whole runs in virtual time, 100000 seeds (SEEDS=1000: only so many, FROM=7: from that one on)
	$(GO) test ./internal/sim -run '^TestSeeds$$' -timeout 0 -count 1 -v -seeds=$(or $(SEEDS),100000) -from=$(or $(FROM),1)

sim-faults: ## break the code on purpose, one fault at a time, and see that the simulation finds each
	$(GO) test ./internal/sim -run '^TestDeliberateFaultsAreCaught$$' -timeout 0 -count 1 -v -faults=all

sim-accuracy: ## compare what simulate predicts with five real runs of a minute each (RUNS=1: only so many)
	DAISY_SIMULATE=$(or $(RUNS),5) $(GO) test ./e2e -run '^TestSimulatePredictsARealRun$$' -timeout 0 -count 1 -v

lint: ## gofmt, go vet, staticcheck, mypy
	@scripts/lint

demo: build ## segment a real volume with 2 workers and compare it with the reference (ARGS=--fresh starts over)
	bin/nuclei prepare --dir examples/nuclei $(ARGS)
	bin/daisy-submit run examples/nuclei/nuclei.toml
	bin/nuclei verify --dir examples/nuclei

clean: ## remove bin/, dist/ and the results of the examples; .tools/ stays
	rm -rf bin dist examples/nuclei/out examples/hello/out
