"""A step of a history: the stream goes on and comes back, so that its tables can restore their own commits."""

from __future__ import annotations

from laws import streams, tables, upkeep
from laws.history import History

_FURTHER = (
    streams.append,
    streams.append,
    streams.restate,
    streams.write_to_the_stream,
    streams.empty_the_stream,
    upkeep.compact,
    tables.rebuild,
    tables.restate,
    tables.backfill,
    tables.backfill,
    tables.backfill,
)


def there_and_back(history: History) -> None:
    """The tables follow to some commits, and then back."""
    back = history.head(history.stream.name)
    if back is None:
        return
    _follow(history)
    for _ in range(history.chance.randint(1, 3)):
        step = history.chance.choice(_FURTHER)
        history.tell(f"{step.__name__}:")
        step(history)
        history.ledger.check_step()
        if history.chance.random() < 0.8:
            _follow(history)
    history.tell("back:")
    streams.roll_back_to(history, back)
    _follow(history)


def _follow(history: History) -> None:
    tables.refresh_all(history)
    history.ledger.check_step()
