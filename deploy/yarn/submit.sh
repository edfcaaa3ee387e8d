#!/usr/bin/env bash
# submit.sh [options of resurge run]: run a job on YARN, the driver in a container of the cluster.
# environment.tar.gz is a packed environment (venv-pack or conda-pack) with resurge and what the job imports.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
: "${HADOOP_CONF_DIR:?set it to the folder with core-site.xml and yarn-site.xml}"
exec spark-submit --master yarn --deploy-mode cluster \
  --name resurge \
  --archives "${ENVIRONMENT:-environment.tar.gz}#environment" \
  --files "${JOB:?the Python file of the job}" \
  --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON=./environment/bin/python \
  --conf spark.executorEnv.PYSPARK_PYTHON=./environment/bin/python \
  --conf "spark.executor.instances=${EXECUTORS:-4}" \
  --conf "spark.executor.cores=${EXECUTOR_CORES:-2}" \
  --conf "spark.executor.memory=${EXECUTOR_MEMORY:-4g}" \
  --conf spark.yarn.maxAppAttempts=5 \
  --conf spark.yarn.am.attemptFailuresValidityInterval=1h \
  "$here/submit.py" run "$(basename "$JOB")" --master yarn "$@"
