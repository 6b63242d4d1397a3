# make demo    from nothing to a translation at every depth: installs, fetches data, trains, sweeps, translates
# make test    installs and runs the linters and the tests
# make bench   the benchmarks of benchmarks/, side by side with their peers
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test lint bench clean
.DELETE_ON_ERROR:

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("anydepth needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e '.[serve,ctranslate2]'
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(BIN)/pip install --quiet -c constraints.txt -e '.[bench]'
	touch $@

demo: $(VENV)/.installed
	$(BIN)/anydepth data tatoeba-en-fr demo/data
	$(BIN)/anydepth train recipes/quickstart.yaml --out demo/run
	$(BIN)/anydepth sweep demo/run --source demo/data/test.fr --reference demo/data/test.en --out demo/report --repeats 3 --batch-size 100
	@set -e; for depth in 1-1 3-1 3-3; do \
	  echo; echo "== at depth $$depth, beam 4 =="; \
	  $(BIN)/anydepth translate demo/run --depth $$depth --beam 4 < recipes/demo.fr > demo/demo.$$depth.en; \
	  paste -d '\n' recipes/demo.fr demo/demo.$$depth.en; \
	done
	@echo; echo "Open demo/report/index.html, or try:"
	@echo "  echo 'Où est la gare ?' | $(BIN)/anydepth translate demo/run --depth 3-1"

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/tied_multi.py
	$(BIN)/python benchmarks/flexible.py
	$(BIN)/python benchmarks/teaching.py
	$(BIN)/python benchmarks/latent.py
	$(BIN)/python benchmarks/by_word.py
	$(BIN)/python benchmarks/word_depths.py
	$(BIN)/python benchmarks/depths.py
	$(BIN)/python benchmarks/decoding.py
	$(BIN)/python benchmarks/distill.py
	$(BIN)/python benchmarks/malformed.py --model demo/run    # these with what `make demo` has left
	$(BIN)/python benchmarks/exporting.py --model demo/run
	$(BIN)/python benchmarks/serving.py --model demo/run
	$(BIN)/python benchmarks/budget.py
	$(BIN)/python benchmarks/every_depth.py
	$(BIN)/python benchmarks/choosing.py

clean:
	rm -rf demo $(VENV)
