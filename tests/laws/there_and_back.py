"""A step of a history: the stream goes on and comes back, so that its tables can restore their own commits."""

from __future__ import annotations

from laws import streams, tables, upkeep
from laws.crashes import Moment
from laws.history import History
from laws.trouble import a_fold_goes_wrong

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
    _there_and_back(history)
    _follow(history)


def there_and_back_with_a_crash(history: History) -> None:
    """Something goes wrong where a table restores its commit, and is tried again: the rows are restored once."""
    _there_and_back(history)
    for defined in history.tables:
        if history.head(defined.table.source.name) is None:
            continue
        moment = history.chance.choice(list(Moment))
        history.tell(f"{defined.name}: it {moment.value};")
        a_fold_goes_wrong(history, defined, moment)
        history.ledger.check_step()
        if history.chance.random() < 0.2:  # others act before it is tried again
            step = history.chance.choice([streams.append, upkeep.compact, upkeep.expire])
            history.tell(f"{step.__name__}:")
            step(history)
            history.ledger.check_step()
    _follow(history)


def _there_and_back(history: History) -> None:
    """The tables follow the stream to some commits, and the stream goes back."""
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


def _follow(history: History) -> None:
    tables.refresh_all(history)
    history.ledger.check_step()
