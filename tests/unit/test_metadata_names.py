"""Every name that foldhouse writes into metadata stands once in the code, and in the order of the documentation."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from foldhouse.values import metadata_names

ROOT = Path(__file__).parents[2]
NAMES = [text for name, text in vars(metadata_names).items() if name.isupper()]


@pytest.mark.slow
def test_each_name_is_said_in_one_place() -> None:
    others = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
            if text in NAMES and path.name != "metadata_names.py":
                others.append(f"{path.name}:{node.lineno}: {text}")
    assert others == [], "import it from foldhouse.values.metadata_names"


def test_the_names_are_in_the_order_of_the_table_format() -> None:
    page = (ROOT / "docs" / "table-format.md").read_text()
    rows = re.findall(r"^\|[^|]*`(foldhouse[.-][a-z.-]+)[`<]", page, re.MULTILINE)
    named = [text for text in NAMES if text in rows]
    assert named == sorted(named, key=rows.index)
    assert [text for text in NAMES if text not in page] == [], "docs/table-format.md explains every name"
