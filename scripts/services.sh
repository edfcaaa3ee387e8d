#!/usr/bin/env bash
# A real Kafka broker and a real PostgreSQL on loopback, in build/services: start | stop | restart|kill kafka|postgres | env.
#
# `start` never fails because a server cannot be had: it says why, and the tests of that server are skipped with that reason.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
home=${RESURGE_SERVICES:-$root/build/services}
pinned=$root/scripts/services
mkdir -p "$home"

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
is_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
is_running() { [ -f "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }
unavailable() { echo "$2" >"$home/$1.unavailable"; echo "$1 is not available: $2" >&2; return 1; }
kept_port() { [ -f "$home/$1.port" ] || free_port >"$home/$1.port"; cat "$home/$1.port"; }
java_command() { if [ -n "${JAVA_HOME:-}" ]; then echo "$JAVA_HOME/bin/java"; else command -v java; fi; }

# Wait for a condition for at most so many seconds.
wait_for() { local until=$((SECONDS + $1)); shift; until "$@"; do [ $SECONDS -lt $until ] || return 1; sleep 0.1; done; }

# Install Debian packages where we may.
apt_install() {
  command -v apt-get >/dev/null && [ "$(id -u)" = 0 ] || return 1
  apt-get update -qq >/dev/null 2>&1 || true
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >"$home/apt.log" 2>&1
}

# Jars from Maven Central; every one must have the pinned checksum. jars NAME FOLDER
jars() {
  if [ -d "$2" ] && (cd "$2" && sha256sum --quiet --strict -c "$pinned/$1.sha256") >/dev/null 2>&1; then return 0; fi
  command -v mvn >/dev/null || apt_install maven || unavailable "$1" "Maven is missing, and could not be installed" || return 1
  rm -rf "$2"
  mvn -q -B -ntp -f "$pinned/$1-pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DoutputDirectory="$2" -DincludeScope=runtime >"$home/maven.log" 2>&1 ||
    unavailable "$1" "Maven could not get the jars: $(grep -m 1 ERROR "$home/maven.log" || true)" || return 1
  (cd "$2" && sha256sum --quiet --strict -c "$pinned/$1.sha256") >"$home/checksums.log" 2>&1 ||
    unavailable "$1" "jars do not have the pinned checksums: $(head -n 1 "$home/checksums.log")" || return 1
}

start_kafka() {
  local folder=$home/kafka java port controller
  is_running "$folder/pid" && return 0
  rm -f "$home/kafka.unavailable"
  java=$(java_command) || unavailable kafka "there is no java command" || return 1
  jars kafka "$folder/libs" || return 1
  port=$(kept_port kafka) controller=$(kept_port controller)
  sed -e "s|@port@|$port|g" -e "s|@controller@|$controller|g" -e "s|@folder@|$folder|g" \
    "$pinned/kafka.properties" >"$folder/server.properties"
  if [ ! -f "$folder/data/meta.properties" ]; then
    "$java" -cp "$folder/libs/*" kafka.tools.StorageTool format -c "$folder/server.properties" \
      -t resurge-services-00001 >"$folder/format.log" 2>&1 ||
      unavailable kafka "its folder could not be formatted: $(tail -n 1 "$folder/format.log")" || return 1
  fi
  setsid nohup "$java" -Xms256m -Xmx768m -XX:+UseSerialGC -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp "$folder/libs/*" \
    kafka.Kafka "$folder/server.properties" </dev/null >>"$folder/server.log" 2>&1 &
  echo $! >"$folder/pid"
  wait_for 120 is_open "$port" || unavailable kafka "it did not open its port; see $folder/server.log" || return 1
}

stop_kafka() { # stop_kafka SIGNAL
  local pid=$home/kafka/pid
  if is_running "$pid"; then
    kill -"${1:-TERM}" "$(cat "$pid")"
    wait_for 30 eval "! is_running $pid" || kill -KILL "$(cat "$pid")" 2>/dev/null || true
  fi
  rm -f "$pid"
}

postgres_command() { # where Debian puts what is not on the PATH
  command -v "$1" || ls -d /usr/lib/postgresql/*/bin/"$1" 2>/dev/null | sort -V | tail -n 1 | grep .
}

# PostgreSQL refuses to run as root.
as_owner() { if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }

postgres_folder() { # a folder that its owner can reach; a clone in root's home is not one
  local wanted=$home/postgres
  mkdir -p "$wanted"
  [ "$(id -u)" != 0 ] || chown postgres "$wanted"
  if ! as_owner test -w "$wanted"; then
    rm -rf "$wanted"
    wanted=/tmp/resurge-services-$(echo "$home" | cksum | cut -d ' ' -f 1)
    mkdir -p -m 700 "$wanted"
    chown postgres "$wanted"
  fi
  echo "$wanted"
}

start_postgres() {
  local folder port control
  if ! postgres_command initdb >/dev/null; then
    apt_install postgresql || unavailable postgres "PostgreSQL is missing, and could not be installed" || return 1
  fi
  rm -f "$home/postgres.unavailable"
  folder=$(postgres_folder) control=$(postgres_command pg_ctl) port=$(kept_port postgres)
  as_owner "$control" -D "$folder/data" status >/dev/null 2>&1 && return 0
  if ! as_owner test -f "$folder/data/PG_VERSION"; then
    as_owner "$(postgres_command initdb)" -D "$folder/data" -U resurge -A trust -E UTF8 --no-locale >"$home/initdb.log" 2>&1 ||
      unavailable postgres "its folder could not be made: $(tail -n 1 "$home/initdb.log")" || return 1
  fi
  as_owner "$control" -D "$folder/data" -l "$folder/server.log" -w -t 60 -s \
    -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories=" start ||
    unavailable postgres "it did not start; see $folder/server.log" || return 1
}

stop_postgres() { # stop_postgres fast|immediate
  local folder; folder=$(postgres_folder 2>/dev/null) || return 0
  as_owner "$(postgres_command pg_ctl)" -D "$folder/data" -m "${1:-fast}" -w -t 60 -s stop 2>/dev/null || true
}

show_env() {
  [ -f "$home/kafka.unavailable" ] || echo "export RESURGE_KAFKA=127.0.0.1:$(kept_port kafka)"
  [ -f "$home/postgres.unavailable" ] || echo "export RESURGE_POSTGRES='host=127.0.0.1 port=$(kept_port postgres) user=resurge dbname=postgres'"
}

case "${1:-} ${2:-}" in
  "start ")
    start_kafka & kafka=$!
    start_postgres || true
    wait $kafka || true
    show_env
    ;;
  "stop ") stop_kafka; stop_postgres ;;
  # As after a power failure: killed, not asked to stop.
  "restart kafka") stop_kafka KILL; start_kafka ;;
  "restart postgres") stop_postgres immediate; start_postgres ;;
  "kill kafka") stop_kafka KILL ;;
  "kill postgres") stop_postgres immediate ;;
  "env ") show_env ;;
  # The jars of Spark's own Kafka connector, for `resurge bench connectors`.
  "jars spark-kafka") jars spark-kafka "$home/spark-kafka/libs"; echo "$home/spark-kafka/libs" ;;
  *) echo "usage: scripts/services.sh start | stop | restart|kill kafka|postgres | env | jars spark-kafka" >&2; exit 2 ;;
esac
