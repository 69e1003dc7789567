"""How Spark reads a store: by a connector of its own if it has a whole one, else by Arrow in its tasks.

| Spark has | a table of the store is read |
|---|---|
| a whole connector | by Spark's Parquet reader |
| none for the scheme | by Arrow in the tasks; said once, with what to install |
| a part of one | not at all: `ConfigurationError`, with what is missing |
"""

from __future__ import annotations

import logging
import re
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql import types as spark

from foldhouse.errors import ConfigurationError

# Hadoop's message if no class is configured for a scheme.
_NONE = re.compile(r"No FileSystem for scheme")
# And if there is no class of that name: Hadoop itself configures names for stores whose jars it does not have.
_NO_CLASS = re.compile(r"ClassNotFoundException: Class \S+ not found")
# That class, or one that it needs.
_HALF = re.compile(r"(?:ClassNotFoundException: (?:Class )?|NoClassDefFoundError: )([\w./$]+)")
_S3A = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_S3_RECIPE = (
    "spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION, the Hadoop version of Spark, and "
    f"spark.hadoop.fs.s3.impl={_S3A}"
)
_RECIPES = {
    "s3": _S3_RECIPE,
    "s3a": "spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION, the Hadoop version of Spark",
    "gs": "Google's gcs-connector",
    "abfs": "spark.jars.packages=org.apache.hadoop:hadoop-azure:VERSION, the Hadoop version of Spark",
    "abfss": "spark.jars.packages=org.apache.hadoop:hadoop-azure:VERSION, the Hadoop version of Spark",
}
_LOG = logging.getLogger("foldhouse.spark")
# Weak keys, so that a session that is no longer used can be collected.
_KNOWN: WeakKeyDictionary[SparkSession, dict[str, bool]] = WeakKeyDictionary()
"""Session -> scheme -> whether its Spark has a connector for it."""


def has_connector(session: SparkSession, schema: spark.StructType, scheme: str, path: str) -> bool:
    """Whether Spark reads the files of a scheme itself; asked and said once per session and scheme.

    Only an error about a missing class counts. If a file is missing or forbidden, the read itself fails.

    Raises:
        ConfigurationError: Spark has a part of a connector.
    """
    known = _KNOWN.setdefault(session, {})
    if scheme not in known:
        known[scheme] = _found(session, schema, scheme, path)
        _announce(session, scheme, known[scheme])
    return known[scheme]


def _found(session: SparkSession, schema: spark.StructType, scheme: str, path: str) -> bool:
    try:
        _ = session.read.schema(schema).parquet(path).schema  # with Spark Connect, only this asks the server
    except Exception as failure:  # raised by Spark, Spark Connect, or py4j for a Java exception
        said = str(failure)
        if _NONE.search(said) or (_NO_CLASS.search(said) and not _is_configured(session, scheme)):
            return False
        if _HALF.search(said):
            raise _half(scheme, said) from None
    return True


def _is_configured(session: SparkSession, scheme: str) -> bool:
    """Whether somebody chose the class of a scheme."""
    return session.conf.get(f"spark.hadoop.fs.{scheme}.impl", None) is not None


def _half(scheme: str, said: str) -> ConfigurationError:
    found = _HALF.search(said)
    missing = found[1].replace("/", ".") if found else "a class"
    return ConfigurationError(
        f"Spark has half a connector for {scheme}://: {missing} is missing. Add the jars, {_recipe(scheme)}; or remove "
        f"spark.hadoop.fs.{scheme}.impl and its jars, and Spark's tasks read {scheme}:// with Arrow"
    )


def _announce(session: SparkSession, scheme: str, has_one: bool) -> None:
    if has_one:
        _LOG.info("Spark reads %s:// with its own connector", scheme)
    elif scheme == "s3" and _has_class(session, _S3A):
        _LOG.warning(
            "Spark's tasks read s3:// with Arrow: Spark has %s, and spark.hadoop.fs.s3.impl does not name it", _S3A
        )
    else:
        _LOG.warning("Spark's tasks read %s:// with Arrow; for Spark's own connector, %s", scheme, _recipe(scheme))


def _recipe(scheme: str) -> str:
    return _RECIPES.get(scheme, f"a Hadoop file system for {scheme}")


def _has_class(session: SparkSession, name: str) -> bool:
    """Whether the driver's Java has a class; not known over Connect."""
    try:
        jvm = session.sparkContext._jvm
        assert jvm is not None
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Exception:  # Connect has no context, and py4j raises for a class that is not there
        return False
    return True
