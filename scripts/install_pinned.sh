#!/usr/bin/env bash
# Install what requirements.txt pins into a virtual environment: with uv, which is much faster than pip, or else with pip.
#
# uv does not read pip's configuration, so what this machine tells pip about indexes and certificates is handed on to it.
# Where uv cannot be had, or does not get everything, pip installs.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1/bin/python
pip() { "$python" -m pip --disable-pip-version-check "$@"; }

# What pip is told: by the environment, or by a file.
told() { # told NAME
  local variable
  variable=PIP_$(echo "$1" | tr 'a-z-' 'A-Z_')
  if [ -n "${!variable:-}" ]; then echo "${!variable}"
  else pip config get "install.$1" 2>/dev/null || pip config get "global.$1" 2>/dev/null || true; fi
}

# Give uv a setting of pip's, unless it has one of its own. hand_on UV_NAME NAME
hand_on() {
  local value
  [ -z "${!1:-}" ] || return 0
  value=$(told "$2")
  [ -z "$value" ] || export "$1=$value"
}

with_uv() {
  pip install --quiet "$(grep '^uv==' requirements.txt)" || return 1
  hand_on UV_DEFAULT_INDEX index-url
  hand_on UV_INDEX extra-index-url
  hand_on UV_FIND_LINKS find-links
  hand_on SSL_CERT_FILE cert
  # As pip does: the pinned version is taken from whichever index has it.
  "$python" -m uv pip install --quiet --python "$python" --index-strategy unsafe-best-match -r requirements.txt
}

with_uv || { echo "uv could not install everything; pip does" >&2; pip install --quiet -r requirements.txt; }
