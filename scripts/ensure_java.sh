#!/usr/bin/env bash
# Spark needs Java 17 or newer: say what was found and how to install it, and install it where we may.
set -euo pipefail
wanted=17

java_command() {
  if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then echo "$JAVA_HOME/bin/java"; else command -v java || true; fi
}

java_major() {
  local java; java=$(java_command)
  [ -n "$java" ] || { echo 0; return; }
  "$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1
}

major=$(java_major)
[ "${major:-0}" -ge "$wanted" ] && exit 0

found="no java command"
[ "${major:-0}" -gt 0 ] && found="Java $major at $(java_command)"
if command -v apt-get >/dev/null; then install="apt-get install -y openjdk-17-jre-headless"
elif command -v dnf >/dev/null; then install="dnf install -y java-17-openjdk-headless"
elif command -v brew >/dev/null; then install="brew install openjdk@17"
else install=""; fi
echo "Resurge runs on Spark, which needs Java $wanted or newer; found: $found." >&2

if [ -n "$install" ] && { [ "$(id -u)" = 0 ] || [ "${install%% *}" = brew ]; }; then
  echo "installing it: $install" >&2
  [ "${install%% *}" = apt-get ] && apt-get update -qq
  $install >/dev/null
  unset JAVA_HOME
  major=$(java_major)
  [ "${major:-0}" -ge "$wanted" ] && exit 0
  echo "still found Java ${major:-none} after the installation; set JAVA_HOME to a Java $wanted and try again" >&2
  exit 1
fi
echo "install it with: sudo ${install:-your package manager (openjdk 17)}; or set JAVA_HOME to a Java $wanted, then run make again" >&2
exit 1
