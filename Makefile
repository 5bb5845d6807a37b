# The only door: every command of the project. CI calls the same ones.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := app engine kernels ui installers tests

.PHONY: run test check setup dev format screenshots clean

run: setup            ## install, fetch the starter model, open the window (or a terminal chat)
	@$(BIN)/hearth models pull starter --if-missing || true
	@$(BIN)/hearth

setup:
	@$(PYTHON) installers/bootstrap.py

dev:
	@$(PYTHON) installers/bootstrap.py --dev

test: dev             ## every test that needs no GPU
	@$(BIN)/hearth models pull starter --if-missing
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest tests --ignore=tests/gpu

check: dev            ## format, lint, types, import contracts, fast tests
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	MYPYPATH=.venv/links $(BIN)/mypy -p hearth.app -p hearth.engine -p hearth.kernels -p hearth.ui
	PYTHONPATH=.venv/links $(BIN)/lint-imports
	QT_QPA_PLATFORM=offscreen $(BIN)/python -m pytest tests/unit -m "not slow and not model and not gpu"

format: dev
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

screenshots: dev      ## docs/pictures from a real exchange with the starter model
	$(BIN)/python installers/screenshots.py

clean:
	rm -rf .venv build dist *.egg-info
