# Every command of this project. `make help` lists them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-costs test-slow test-deployment test-deployment-again fault-seeds drill lint \
	types docs check bench bench-peers modules experiments experiments-again sbom audit wheel constraints-hashed nightly clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

# torch goes first and through plain pip, pinned by constraints.txt, so that everything after it finds it there.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Gossamer needs Python 3.11 or newer, found $$($(PYTHON) --version). Try: make PYTHON=python3.12 demo"; exit 2; }
	@echo "Making the environment in $(VENV) (a few minutes, once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check torch -c constraints.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]" -c constraints.txt
	@touch $@

demo: $(READY) ## eight nodes learn digits without a server, one of them ten times slower
	@$(BIN)/gossamer run examples/digits-gossip.yaml --out runs/demo --overwrite

# A worker for each core: more threads in each of them would wait for one another.
test test-long test-costs test-slow test-deployment test-deployment-again: export OMP_NUM_THREADS = 1
# Commands that tests start find modules compiled, also where the environment asks Python to write none.
test test-long test-costs test-slow test-deployment test-deployment-again fault-seeds drill: export PYTHONDONTWRITEBYTECODE =

test: $(READY) ## run the tests (what CI runs)
	@$(BIN)/python -m pytest -n auto --dist worksteal --length short

# They may run beside others, whose failures are not to be forgotten.
test-long: $(READY) ## run those that take longer, a fifth of a second and more (nightly, and before a pull request)
	@$(BIN)/python -m pytest -n auto --dist worksteal --length long -p no:lfplugin

test-costs: $(READY) ## run both, and measure which take longer (tests/costs.tsv)
	@: > tests/costs.tsv
	@$(BIN)/python -m pytest -n auto --dist worksteal --costs

test-slow: $(READY) ## also run statistical, parity and full-size tests, and all cases of every test (nightly)
	@$(BIN)/python -m pytest -n auto --dist worksteal --slow

# Nightly: make fault-seeds SEEDS=100000
SEEDS ?= 2000
JOBS ?= $(shell nproc)
ALONE := --set algorithm.noise_by=client --set algorithm.trusted=null
# Of fedavg the example has a trusted server and secret cohorts, of fedbuff a trusted server.
FAULTS := $(patsubst examples/digits-%.yaml,%,$(wildcard examples/digits-*.yaml)) "graph --set algorithm.masking=secure" \
	"fedavg --set algorithm.cohorts=public" "fedavg --set algorithm.cohorts=public $(ALONE)" "fedbuff $(ALONE)" \
	"fedbuff --set algorithm.masking=secure $(ALONE)"
fault-seeds: $(READY) ## SEEDS seeds of faults for each algorithm, 2000 by default
	@for run in $(FAULTS); do \
		set -- $$run; spec=examples/digits-$$1.yaml; shift; \
		$(BIN)/gossamer simulate-faults $$spec "$$@" --seeds $(SEEDS) --jobs $(JOBS) || exit 1; \
	done
	@$(BIN)/python -m tests.reference.ordered_parties 0:$(SEEDS) # an organiser's orders, by deployed parties

drill: $(READY) ## eight hospitals through outages 20 times, with processes and a broker, for each of three algorithms (nightly, hours)
	@for name in gossip fedbuff graph; do \
		$(BIN)/python examples/drill/processes.py examples/drill/$$name.yaml --runs 20 || exit 1; \
	done
	@$(BIN)/python -m pytest --slow tests/end_to_end/test_order_drills.py

DEPLOYMENT := tests/end_to_end/test_mqtt_transport.py tests/end_to_end/test_broker_access.py tests/parity \
	tests/end_to_end/test_federation_*.py tests/end_to_end/test_founded_*.py tests/end_to_end/test_deployment_*.py \
	tests/end_to_end/test_hostile_party.py
# They wait for one another most of the time: twice as many as processors. Those marked nightly are left to test-slow.
test-deployment: $(READY) ## the slow tests of real processes over brokers; `make test` runs the others (what CI runs)
	@$(BIN)/python -m pytest -n $$((2 * $$(nproc))) --dist worksteal --slow -m "slow and not nightly" $(DEPLOYMENT)

# Processes and brokers wait for one another; a machine that is busy with something else can keep one waiting too long.
test-deployment-again: $(READY) ## those that failed once more, one at a time: what fails twice is no accident
	@$(BIN)/python -m pytest --slow -m "slow and not nightly" --last-failed --last-failed-no-failures none $(DEPLOYMENT)

lint: $(READY) ## style
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY) ## strict type check
	@$(BIN)/mypy -p gossamer

# Strict: a link that leads nowhere fails. The variable silences a notice about another program.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(READY) ## the documentation as a site, in build/site
	@$(BIN)/mkdocs build
	@echo "The site is in build/site; to search it too: $(BIN)/python -m http.server --directory build/site"

check: lint types test ## all checks

bench: $(READY) ## speed and memory, as ratios in one run
	@for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

bench-peers: $(READY) ## the same work by other libraries, in environments of their own
	@$(BIN)/python benchmarks/peers --out runs/peers.json

modules: $(READY) ## modules of other packages: trained, or refused in our words (nightly)
	@$(BIN)/python benchmarks/modules.py

experiments: $(READY) ## the papers' figures, at the size that runs here: those that are not there, or of another spec
	$(BIN)/python experiments/run.py

experiments-again: $(READY) ## all of them once more: do they come out as they are stored? (nightly, hours)
	$(BIN)/python experiments/run.py --again --jobs $(JOBS)

# Releases (release/README.md). Their tools have an environment of their own, pinned with hashes.
TOOLS := $(VENV)-release
$(TOOLS)/.ready: release/tools.txt
	@$(PYTHON) -m venv $(TOOLS)
	@$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r release/tools.txt
	@touch $@

sbom: $(READY) $(TOOLS)/.ready ## a list of all software in the environment, as CycloneDX, in build/sbom.json
	@$(TOOLS)/bin/python release/sbom.py $(VENV) build/sbom.json

# Without a network it says that it was skipped, and why, and fails; a night goes on with AUDIT=--may-skip.
audit: $(TOOLS)/.ready ## known vulnerabilities of the pinned packages
	@$(TOOLS)/bin/python release/audit.py constraints.txt $(AUDIT)

wheel: $(TOOLS)/.ready ## the last commit's wheel, built twice with one hash, in build/dist
	@$(TOOLS)/bin/python release/wheel.py build/dist

# torch is left out: it is another build, with another hash, for each kind of machine.
COMPILE := $(TOOLS)/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links
constraints-hashed: $(TOOLS)/.ready ## the pins of constraints.txt with the hashes of their files
	@mkdir -p build
	@grep -v '^torch==' constraints.txt > build/pins.in
	@$(COMPILE) --output-file release/constraints-hashed.txt build/pins.in
	@$(COMPILE) --output-file release/tools.txt release/tools.in

nightly: test-slow modules audit wheel ## what runs every night, besides make fault-seeds SEEDS=100000, drill and experiments-again

clean: ## remove the environment and the results
	rm -rf $(VENV) $(TOOLS) runs build .mypy_cache .ruff_cache .pytest_cache
