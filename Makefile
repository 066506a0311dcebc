# Every target sets up what it needs: .venv is made on the first run and reused while pyproject.toml and
# constraints.txt stay the same. `make PYTHON=/path/to/python3.12 test` picks the interpreter of a new .venv.

PYTHON ?=
JOBS ?= 2
EXAMPLES ?= 120
ARGS ?=
BIN := .venv/bin
export PYTHON

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo demo-spark verify-demo test test-thorough test-interop test-oracles mutants lint format docs docs-serve bench java postgresql clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: ## write a real table under demo-data/ and run three queries on it
	@bash scripts/setup.sh demo
	@$(BIN)/python examples/demo.py

demo-spark: ## run a whole job on Spark under demo-data/spark: plan, index, prune, join, write
	@bash scripts/setup.sh spark
	-@bash scripts/ensure_java.sh
	@$(BIN)/python examples/spark_pipeline.py demo-data/spark

verify-demo: demo ## prove on the demo table that pruning changes no result
	$(BIN)/tamis verify demo-data/flights --where "origin = 'JFK' AND month = 7 AND day = 4 AND dep_delay >= 60"
	$(BIN)/tamis verify demo-data/flights --where "date(time_hour) = DATE '2013-02-09' AND distance > 2000"

test: lint ## lint, check types and run all tests; ARGS="-k hive" goes to pytest
	-@bash scripts/ensure_java.sh
	-@bash scripts/ensure_postgresql.sh
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder $(ARGS)

test-thorough: ## what `make test` does in part: all cases of long sweeps, and properties with three times the examples
	@bash scripts/setup.sh test
	TAMIS_THOROUGH=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m "(one_in or hypothesis) and not interop" $(ARGS)
	TAMIS_THOROUGH=1 $(BIN)/python -m pytest -n $(JOBS) --dist worksteal tests/oracles $(ARGS)

test-interop: ## compare with Delta and Iceberg on Spark, Spark Connect and the peers of benchmarks; skipped, with the reason, where Java or Maven cannot be had
	@bash scripts/setup.sh interop
	-@bash scripts/setup_iceberg_spark.sh
	-@bash scripts/setup_tpcds.sh
	-@bash scripts/ensure_java.sh
	$(BIN)/python -m pytest -n 0 -m interop tests --ignore tests/interop $(ARGS)
	$(BIN)/python -m pytest -n 0 -m interop tests/interop $(ARGS)

test-oracles: ## the property tests once more with EXAMPLES=120 examples each, twelve times what `make test` takes
	@bash scripts/setup.sh test
	TAMIS_HYPOTHESIS_PROFILE=long TAMIS_HYPOTHESIS_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal \
		tests/oracles tests/index/test_oracle.py tests/formats/delta/test_statistics_oracle.py \
		tests/query/test_random_queries.py tests/query/test_random_policies.py $(ARGS)

mutants: ## put small mistakes into the code that must not lose a row, and see that tests notice; ARGS goes to scripts/mutants.py
	@bash scripts/setup.sh test
	$(BIN)/python scripts/mutants.py $(ARGS)

lint: ## ruff (rules and format) and mypy --strict, changing nothing
	@bash scripts/setup.sh test
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy --strict src

format: ## let ruff format the code and mend what it can
	@bash scripts/setup.sh test
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

docs: ## build the documentation into site/; a broken link is an error
	@bash scripts/setup.sh docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet --clean
	@echo "docs: open site/index.html"

docs-serve: ## show the documentation at http://127.0.0.1:8000, and again after each change
	@bash scripts/setup.sh docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

bench: ## run the benchmarks; ARGS goes to benchmarks/run.py
	@bash scripts/setup.sh bench
	$(BIN)/python benchmarks/run.py $(ARGS)

java: ## check for the Java that Spark needs, and install it where that is possible
	@bash scripts/ensure_java.sh

postgresql: ## check for the PostgreSQL server that tests start, and install it where that is possible
	@bash scripts/ensure_postgresql.sh

clean: ## remove the environment, the demo and benchmark data and all caches
	rm -rf .venv .venv-iceberg .venv-tpcds demo-data bench-data build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
