#!/usr/bin/env bash
# submit.sh MASTER [options of resurge run]: run a job on a standalone cluster with spark-submit.
# The driver runs here (client mode): put this command under a supervisor, see ../systemd.
set -euo pipefail
master=$1; shift
here=$(cd "$(dirname "$0")/.." && pwd)
# Executors need the driver's Python and packages at the same path, or a packed environment (--archives).
exec spark-submit --master "$master" \
  --conf "spark.executor.cores=${EXECUTOR_CORES:-2}" \
  --conf "spark.executor.memory=${EXECUTOR_MEMORY:-2g}" \
  "$here/submit.py" run --master "$master" "$@"
