"""The process from which Spark forks its Python workers, with what their tasks need already imported.

A worker that imports Arrow, Polars and pyiceberg itself spends a second or more on it, and Spark starts workers anew
whenever none was used for a minute. A fork has them at once, and shares their memory. Nothing here may use these
libraries before the fork: their threads do not survive it.
"""

import gc

from foldhouse.garbage import importing

with importing():
    from pyspark.daemon import manager

    import foldhouse.refresh.run.on_spark
    import foldhouse.spark.source  # noqa: F401

if __name__ == "__main__":
    # Each worker collects garbage after each task; what is imported never is, and looking through it takes 60 ms.
    gc.freeze()
    manager()
