# make demo    the bundled model translates; then a small one is trained from nothing, and every depth of it measured
# make check   installs; linters, types and the quick tests: in about a minute
# make test    those and the slow tests: all there is
# make wasm    builds the core for the browser, after a change of csrc
# make docs    builds the site from docs/ into site/
# make bench   the benchmarks of benchmarks/, side by side with their peers
# make studies the runs behind docs/studies.md: days
# make lint    linters and types alone
# make clean   deletes demo/ and .venv
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# pip compiles byte code on one core; COMPILE does it on all of them. Without it, every start in a read-only container
# would compile anew.
PIP = $(BIN)/pip install --quiet --no-compile -c constraints.txt
# Packages that only tests and tools import are not compiled: they are most of the files.
TOOLS = mypy|mypyc|onnx|onnxruntime|onnxscript|pandas|pip|playwright|ray|setuptools|transformers
NOT_COMPILED = /tests/|/testing/_internal/|site-packages/($(TOOLS))/
COMPILE = $(BIN)/python -m compileall -qq -j 0 -x '$(NOT_COMPILED)' $(VENV)/lib src || true
# Files are handed out one by one, the slow ones first (tests/conftest.py): so all cores are busy to the end.
PYTEST = $(BIN)/python -m pytest -n logical --dist loadfile --no-loadscope-reorder
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo check test lint wasm docs bench studies clean
.DELETE_ON_ERROR:

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("anydepth needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt setup.py $(wildcard csrc/*) | $(BIN)/python
	$(PIP) torch
	$(PIP) -e '.[serve,ctranslate2]'
	$(COMPILE)
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt setup.py $(wildcard csrc/*) | $(BIN)/python
	$(PIP) torch
	$(PIP) -e '.[dev]'
	$(COMPILE)
	touch $(VENV)/.installed $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(PIP) -e '.[bench]'
	$(COMPILE)
	touch $@

demo: $(VENV)/.installed
	@set -e; mkdir -p demo; for depth in 1-1 2-2 6-3; do \
	  echo; echo "== the bundled model at depth $$depth =="; \
	  $(BIN)/anydepth translate --depth $$depth < recipes/demo.pt > demo/bundled.$$depth.en; \
	  paste -d '\n' recipes/demo.pt demo/bundled.$$depth.en; \
	done
	@echo; echo "== now a small one from nothing, French to English: data, training, every depth measured =="
	$(BIN)/anydepth data tatoeba-en-fr demo/data
	$(BIN)/anydepth train recipes/quickstart.yaml --out demo/run
	for side in fr en; do head -500 demo/data/test.$$side > demo/test.$$side; done
	$(BIN)/anydepth sweep demo/run --source demo/test.fr --reference demo/test.en --out demo/report --batch-size 100 --no-record
	@echo; echo "== the small one at depth 3-3, beam 4 =="; set -e; \
	  $(BIN)/anydepth translate demo/run --depth 3-3 --beam 4 < recipes/demo.fr > demo/demo.3-3.en; \
	  paste -d '\n' recipes/demo.fr demo/demo.3-3.en
	@echo; echo "The report is demo/report/index.html. Try:"
	@echo "  echo 'Onde fica a estação?' | $(BIN)/anydepth translate"
	@echo "  $(BIN)/anydepth serve      # and open the address that it prints"
	@if [ -n "$$DISPLAY$$WAYLAND_DISPLAY" ] || [ "$$(uname)" = Darwin ]; then $(BIN)/python -m webbrowser "file://$(CURDIR)/demo/report/index.html"; fi

# mypy runs beside the tests: it takes a minute of one core. What it says comes last.
check: CHOSEN = -m 'not slow'
check test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/mypy > $(VENV)/mypy.log 2>&1 & mypy=$$!; \
	echo "$(PYTEST) $(CHOSEN)"; $(PYTEST) $(CHOSEN); tests=$$?; \
	wait $$mypy; types=$$?; echo mypy; cat $(VENV)/mypy.log; test $$tests = 0 && test $$types = 0

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A virtual environment of its own: ziglang is large, and nothing else needs it.
wasm: | $(BIN)/python
	test -x $(VENV)/zig/bin/python || $(PYTHON) -m venv $(VENV)/zig
	$(VENV)/zig/bin/pip install --quiet ziglang==0.17.0
	$(VENV)/zig/bin/python csrc/wasm/build.py

docs: $(VENV)/.installed
	$(PIP) -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/tied_multi.py
	$(BIN)/python benchmarks/flexible.py
	$(BIN)/python benchmarks/teaching.py
	$(BIN)/python benchmarks/latent.py
	$(BIN)/python benchmarks/by_word.py
	$(BIN)/python benchmarks/classifying.py
	$(BIN)/python benchmarks/word_depths.py
	$(BIN)/python benchmarks/depths.py
	$(BIN)/python benchmarks/decoding.py
	$(BIN)/python benchmarks/native.py
	$(BIN)/python benchmarks/int4.py
	$(BIN)/python benchmarks/growing.py demo/grown && $(BIN)/python benchmarks/speculation.py demo/grown
	$(BIN)/python benchmarks/token_exits.py
	$(BIN)/python benchmarks/promise.py
	$(BIN)/python benchmarks/distill.py
	$(BIN)/python benchmarks/malformed.py
	$(BIN)/python benchmarks/processes.py
	$(BIN)/python benchmarks/on_ray.py
	$(BIN)/python benchmarks/corpus.py       # five million pairs, a few GB of disk while it lasts
	$(BIN)/python benchmarks/scale.py --check
	$(BIN)/python benchmarks/exporting.py    # these with what `make demo` has left
	$(BIN)/python benchmarks/serving.py
	$(BIN)/python benchmarks/engines.py
	$(BIN)/python benchmarks/native_bundled.py
	cmake -S csrc -B build/core && cmake --build build/core && $(BIN)/python benchmarks/runtime.py
	$(BIN)/python benchmarks/wasm.py          # needs Node
# and, with a plain model and a distilled one of your own: benchmarks/best_of_menu.py PLAIN MENU --source F --reference F
	$(BIN)/python benchmarks/budget.py
	$(BIN)/python benchmarks/every_depth.py
	$(BIN)/python benchmarks/choosing.py
	$(BIN)/python benchmarks/training.py      # needs accelerate
	$(BIN)/python benchmarks/optimizers.py demo/optimizers    # hours
# and, with test sets of your own: benchmarks/bundled.py EVAL, benchmarks/firefox.py SOURCE REFERENCE --peer PYTHON

# The runs behind docs/studies.md: days on two cores. Stop it whenever you like; it goes on where it stopped.
studies: $(VENV)/.installed
	$(BIN)/python studies/run.py $(CLAIMS)

clean:
	rm -rf demo $(VENV)
