"""Read long texts of a classic session's JVM in pieces.

py4j's Java side sends an answer of more than 8 KiB in several writes. The last one waits until this process has
acknowledged those before, which it does after 40 ms (Nagle's algorithm and TCP's delayed acknowledgements). So the text
is put in a `StringBuilder`, which stays in the JVM, and short pieces of it are asked for.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

_PIECE = 2_500
"""Characters, of at most three bytes each."""
_BUILDERS: WeakKeyDictionary[Any, tuple[Any, Any]] = WeakKeyDictionary()
"""A JVM -> a function that puts `toJSON()` of a tree in a `StringBuilder`, and Java's class `List`."""


def json_of(session: SparkSession, tree: Any) -> str:
    """Return `toJSON()` of a plan or an expression of Spark, which is an object of the session's JVM."""
    jvm: Any = session._jvm
    if jvm not in _BUILDERS:
        _BUILDERS[jvm] = _json_in_builder(session), jvm.java.util.List
    function, listed = _BUILDERS[jvm]
    builder = function.invokeWithArguments(listed.of(tree))
    size = builder.length()
    if builder.codePointCount(0, size) != size:  # half of a character cannot be sent
        return str(tree.toJSON())
    return "".join(builder.substring(at, min(at + _PIECE, size)) for at in range(0, size, _PIECE))


def _json_in_builder(session: SparkSession) -> Any:
    jvm: Any = session._jvm
    gateway: Any = session.sparkContext._gateway
    java, handles = jvm.java.lang, jvm.java.lang.invoke.MethodHandles
    loader = session._jsparkSession.getClass().getClassLoader()
    node = java.Class.forName("org.apache.spark.sql.catalyst.trees.TreeNode", True, loader)
    of_text = gateway.new_array(java.Class, 1)
    of_text[0] = java.Class.forName("java.lang.String")
    builder = java.Class.forName("java.lang.StringBuilder").getConstructor(of_text)
    to_json = node.getMethod("toJSON", gateway.new_array(java.Class, 0))
    lookup = handles.publicLookup()
    return handles.filterReturnValue(lookup.unreflect(to_json), lookup.unreflectConstructor(builder))
