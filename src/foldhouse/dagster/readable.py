"""How far tables are behind, for sensors that follow many: a table that cannot be read does not hide the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from foldhouse.errors import FoldhouseError
from foldhouse.lake import Lake
from foldhouse.values.definition import Table
from foldhouse.values.proofs import SourceLag


@dataclass(frozen=True)
class Readable:
    """What a look at a lake found.

    Args:
        lags: table -> how far it is behind each of its sources; a table that was never folded is not among them.
        unreadable: the followed tables that cannot be read, or whose sources cannot -> why.
    """

    lags: Mapping[str, tuple[SourceLag, ...]]
    unreadable: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(lake: Lake, tables: Sequence[Table]) -> "Readable":
        """Look at a lake; if something in it cannot be read, at each of some tables by itself.

        Args:
            lake: the lake.
            tables: the followed tables.

        Raises:
            FoldhouseError: the catalog cannot be read, or none of the tables.
        """
        try:
            return Readable(lake.lags())
        except FoldhouseError as failure:
            lags: dict[str, tuple[SourceLag, ...]] = {}
            unreadable: dict[str, str] = {}
            known = set(lake.tables())
            for table in tables:
                try:
                    for source in table.sources:
                        lake.head(source)
                    if table.name in known:
                        lags[table.name] = lake.lag(table)
                except FoldhouseError as one:
                    unreadable[table.name] = str(one)
            if tables and len(unreadable) == len(tables):
                raise failure
            return Readable(lags, unreadable)
