#!/usr/bin/env bash
# A Spark Connect server of the installed pyspark: spark-connect.sh ADDRESS PORT. SPARK_MASTER names a cluster.
set -euo pipefail
spark=$(python -c 'import pyspark, pathlib; print(pathlib.Path(pyspark.__file__).parent)')
export PYSPARK_PYTHON=${PYSPARK_PYTHON:-$(command -v python)}
case ${SPARK_MASTER:-local} in
local*) daemon=foldhouse.refresh.run.daemon ;; # its workers have imported what they need
*) daemon=pyspark.daemon ;;                    # executors may lack foldhouse: they get it from the session
esac
exec "$spark/bin/spark-submit" --class org.apache.spark.sql.connect.service.SparkConnectServer \
    --conf "spark.master=${SPARK_MASTER:-local[*]}" \
    --conf "spark.driver.memory=${SPARK_DRIVER_MEMORY:-2g}" \
    --conf "spark.connect.grpc.binding.address=$1" \
    --conf "spark.connect.grpc.binding.port=$2" \
    --conf "spark.python.daemon.module=$daemon" \
    --conf spark.ui.enabled=false
