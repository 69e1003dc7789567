#!/usr/bin/env bash
# A Spark Connect server of the installed pyspark: spark-connect.sh ADDRESS PORT. SPARK_MASTER names a cluster.
set -euo pipefail
spark=$(python -c 'import pyspark, pathlib; print(pathlib.Path(pyspark.__file__).parent)')
export PYSPARK_PYTHON=${PYSPARK_PYTHON:-$(command -v python)}
exec "$spark/bin/spark-submit" --class org.apache.spark.sql.connect.service.SparkConnectServer \
    --conf "spark.master=${SPARK_MASTER:-local[*]}" \
    --conf "spark.driver.memory=${SPARK_DRIVER_MEMORY:-2g}" \
    --conf "spark.connect.grpc.binding.address=$1" \
    --conf "spark.connect.grpc.binding.port=$2" \
    --conf spark.ui.enabled=false
