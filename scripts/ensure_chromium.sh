#!/usr/bin/env bash
# Browser tests need Chromium: install it where we may; where we may not, those tests are skipped and say so.
set -euo pipefail
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null && exit 0
done
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  echo "installing Chromium for the browser tests: apt-get install -y chromium" >&2
  { apt-get update -qq && apt-get install -y --no-install-recommends chromium >/dev/null; } ||
    echo "Chromium was not installed; browser tests will be skipped" >&2
else
  echo "no Chromium: browser tests will be skipped (install it with: sudo apt-get install chromium)" >&2
fi
exit 0
