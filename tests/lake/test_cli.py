"""The command line over a small lake; no test here starts a JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import foldhouse as fh
from foldhouse.cli import main
from foldhouse.cli.main import SUBCOMMANDS
from foldhouse.cli.output import Column, _widths, plain, text_of
from foldhouse.cli.progress import progress_of
from foldhouse.values.moment_text import utc_text

payments = fh.stream(
    "shop.payments", schema={"paid_at": "timestamp", "customer": "string", "amount": "decimal(12,2)", "note": "string"}
)
balances = fh.table(
    "shop.balances",
    source=payments,
    keys="customer",
    fold=fh.fold(balance=fh.total("amount"), payments=fh.count(), last_paid_at=fh.maximum("paid_at")),
)


def paid(customer: str, amount: str, note: str | None = None, day: int = 4) -> dict[str, object]:
    return {"paid_at": datetime(2024, 3, day, 9), "customer": customer, "amount": Decimal(amount), "note": note}


def land(lake: fh.Lake, *events: dict[str, object]) -> None:
    schema = pa.schema([("paid_at", pa.timestamp("us")), ("customer", pa.string()), ("amount", pa.decimal128(12, 2))])
    lake.append(payments, pa.Table.from_pylist(list(events), schema.append(pa.field("note", pa.string()))))


@pytest.fixture
def shop(lake: fh.Lake) -> fh.Lake:
    """Two commits of payments, both folded: ada from 10.00 to 12.50, bob from nothing to 5.00."""
    land(lake, paid("ada", "10.00"))
    lake.refresh(balances)
    land(lake, paid("ada", "2.50", day=5), paid("bob", "5.00", day=5))
    lake.refresh(balances)
    return lake


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def call(*words: str, terminal: bool = False) -> Result:
    env = {"FORCE_COLOR": "1" if terminal else None, "COLUMNS": "120", "NO_COLOR": "1" if terminal else None}
    return CliRunner(env=env).invoke(main, list(words))


def objects(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_tables_says_of_each_what_it_is_and_how_far_it_is_folded(shop, folder):
    table, stream = objects(call("tables", "--lake", folder, "--json"))
    source = shop.head(payments)
    assert (table["name"], table["kind"], table["rows"], table["coverage"]) == ("shop.balances", "table", 2, "*")
    assert (table["is_behind"], table["sources"]) == (
        False,
        [
            {
                "name": "shop.payments",
                "position": str(source.id),
                "commits_behind": 0,
                "rows_behind": 0,
                "seconds_behind": 0.0,
                "sources": [],
            }
        ],
    )
    assert (stream["name"], stream["kind"], stream["rows"], stream["sources"]) == ("shop.payments", "stream", 3, [])
    assert stream["is_behind"] is None
    assert stream["last_commit"] == utc_text(source.committed_at)


def test_a_table_whose_source_moved_on_is_so_many_commits_behind(shop, folder):
    land(shop, paid("cyd", "1.00"))
    assert objects(call("tables", "--lake", folder, "--json"))[0]["sources"][0]["commits_behind"] == 1
    land(shop, paid("cyd", "1.00"))
    assert "2 commits behind shop.payments" in call("tables", "--lake", folder).stdout


def test_a_table_whose_source_was_rolled_back_is_not_called_up_to_date(shop, folder):
    shop.rollback(payments, to=shop.history(payments)[-1].id)
    assert objects(call("tables", "--lake", folder, "--json"))[0]["sources"][0]["commits_behind"] is None
    assert "up to date" not in call("tables", "--lake", folder).stdout


def test_where_nobody_watches_rows_are_tab_separated_and_in_the_order_of_their_keys(shop, folder):
    assert call("show", "shop.balances", "--lake", folder).stdout.splitlines() == [
        "customer\tbalance\tpayments\tlast_paid_at",
        "ada\t12.50\t2\t2024-03-05 09:00:00",
        "bob\t5.00\t1\t2024-03-05 09:00:00",
    ]


def test_as_json_decimals_are_text_and_times_are_iso_8601(shop, folder):
    ada, _ = objects(call("show", "shop.balances", "--lake", folder, "--json"))
    assert ada == {"customer": "ada", "balance": "12.50", "payments": 2, "last_paid_at": "2024-03-05T09:00:00"}


def test_a_table_can_be_shown_as_it_was_at_a_snapshot_and_at_a_moment(shop, folder):
    first = shop.history(balances)[-1]
    for moment in (str(first.id), utc_text(first.committed_at)):
        rows = objects(call("show", "shop.balances", "--lake", folder, "--as-of", moment, "--json"))
        assert [(row["customer"], row["balance"]) for row in rows] == [("ada", "10.00")]


def test_a_limit_cuts_rows_and_a_terminal_says_that_it_did(shop, folder):
    assert len(objects(call("show", "shop.balances", "--lake", folder, "--json", "--limit", "1"))) == 1
    for limit in ("0", "99999999999999999999999"):
        assert len(objects(call("show", "shop.balances", "--lake", folder, "--json", "--limit", limit))) == 2
    shown = call("show", "shop.balances", "--lake", folder, "--limit", "1", terminal=True).stdout
    assert "1 of 2 rows; --limit 0 shows all" in shown
    assert "bob" not in shown


def test_changes_are_those_of_the_last_commit_where_nothing_else_is_asked_for(shop, folder):
    changes = objects(call("changes", "shop.balances", "--lake", folder, "--json"))
    assert [(c["_change_type"], c["customer"], c["balance"]) for c in changes] == [
        ("UPDATE_BEFORE", "ada", "10.00"),
        ("UPDATE_AFTER", "ada", "12.50"),
        ("INSERT", "bob", "5.00"),
    ]
    assert {c["_commit_snapshot_id"] for c in changes} == {str(shop.head(balances).id)}


def test_changes_from_the_beginning_come_commit_by_commit_or_net(shop, folder):
    every = objects(call("changes", "shop.balances", "--after", "0", "--lake", folder, "--json"))
    assert [c["_change_ordinal"] for c in every] == [0, 1, 1, 1]
    net = objects(call("changes", "shop.balances", "--after", "0", "--net", "--lake", folder, "--json"))
    assert [(c["_change_type"], c["balance"]) for c in net] == [("INSERT", "12.50"), ("INSERT", "5.00")]


def test_changes_up_to_a_moment_leave_out_what_came_later(shop, folder):
    first = shop.history(balances)[-1]
    arguments = ("changes", "shop.balances", "--after", "0", "--upto", str(first.id), "--lake", folder)
    assert [c["balance"] for c in objects(call(*arguments, "--json"))] == ["10.00"]


def test_diff_shows_what_is_different_between_two_moments_and_between_one_and_now(shop, folder):
    last, first = (info.id for info in shop.history(balances))
    rows = objects(call("diff", "shop.balances", str(first), "--lake", folder, "--json"))
    assert [(c["_change_type"], c["balance"]) for c in rows] == [
        ("UPDATE_BEFORE", "10.00"),
        ("UPDATE_AFTER", "12.50"),
        ("INSERT", "5.00"),
    ]
    assert rows == objects(call("diff", "shop.balances", str(first), str(last), "--lake", folder, "--json"))
    nothing = call("diff", "shop.balances", str(last), str(last), "--lake", folder, terminal=True).stdout
    assert "nothing changed" in nothing


def test_in_text_the_words_of_a_change_come_first(shop, folder):
    heading, *lines = call("changes", "shop.balances", "--lake", folder).stdout.splitlines()
    assert heading.split("\t")[:3] == ["_change_type", "_change_ordinal", "_commit_snapshot_id"]
    assert [line.split("\t")[0] for line in lines] == ["UPDATE_BEFORE", "UPDATE_AFTER", "INSERT"]


def test_on_a_terminal_a_change_has_a_sign_and_its_own_word(shop, folder):
    shown = call("changes", "shop.balances", "--lake", folder, terminal=True).stdout
    for words in ("~ UPDATE_BEFORE", "~ UPDATE_AFTER", "+ INSERT", "1 inserted, 0 deleted, 1 updated in 1 commit"):
        assert words in shown
    assert utc_text(shop.head(balances).committed_at) in shown


def test_a_row_that_went_away_is_a_delete(shop, folder):
    shop.rollback(payments, to=shop.history(payments)[-1].id)
    shop.refresh(balances)
    assert "- DELETE" in call("changes", "shop.balances", "--lake", folder, terminal=True).stdout


def test_a_commit_that_changed_no_row_says_so(shop, folder):
    head = str(shop.head(balances).id)
    arguments = ("changes", "shop.balances", "--after", head, "--lake", folder)
    assert "nothing changed" in call(*arguments, terminal=True).stdout


def test_history_lists_commits_newest_first_with_position_and_run(shop, folder):
    newest, oldest = objects(call("history", "shop.balances", "--lake", folder, "--json"))
    assert (newest["rows"], oldest["rows"]) == (2, 1)
    assert newest["parent_id"] == oldest["snapshot_id"]
    assert newest["position"] == {"shop.payments": str(shop.head(payments).id)}
    assert newest["run_id"] == newest["summary"]["foldhouse.run-id"] == shop.run_id
    text = call("history", "shop.balances", "--lake", folder).stdout
    assert text.splitlines()[1].startswith(f"{newest['snapshot_id']}\t{newest['committed_at']}\t")


def test_a_misspelt_name_is_one_line_that_names_the_nearest(shop, folder):
    for wrong in ("shop.balance", "balances"):
        result = call("show", wrong, "--lake", folder)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"error: there is no table {wrong} in the lake; did you mean shop.balances? ")
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["show", "changes", "history", "rollback"])
def test_every_command_knows_the_tables_of_the_lake(shop, folder, command):
    options = ("--to", "1", "--yes") if command == "rollback" else ()
    result = call(command, "shop.balanced", *options, "--lake", folder)
    assert result.exit_code == 2
    assert "did you mean shop.balances?" in result.stderr


@pytest.mark.parametrize("words", [("tables",), ("show", "a.b"), ("changes", "a.b"), ("history", "a.b")])
def test_a_lake_that_is_not_there_is_not_made_by_reading_it(tmp_path, words):
    missing = tmp_path / "nowhere"
    result = call(*words, "--lake", str(missing))
    assert result.exit_code == 3
    assert result.stderr.startswith(f"error: there is no lake in {missing}")
    assert "fh.Lake.local" in result.stderr
    assert not missing.exists()


def test_the_lake_is_named_by_the_environment_where_no_option_does(shop, folder):
    result = CliRunner(env={"FOLDHOUSE_LAKE": folder}).invoke(main, ["tables"])
    assert result.stdout.splitlines()[1].startswith("shop.balances\ttable\t2\t")


@pytest.mark.parametrize(
    "words",
    [("shows",), ("show",), ("show", "shop.balances", "--limit", "-1"), ("changes", "shop.balances", "--upto", "1")],
)
def test_a_command_that_is_not_understood_ends_with_2(shop, folder, words):
    result = call(*words, *(() if words == ("shows",) else ("--lake", folder)))
    assert result.exit_code == 2
    assert "Usage:" in result.stderr


def test_an_unknown_moment_says_where_the_known_ones_are_listed(shop, folder):
    for moment in ("12345", "2001-01-01", "yesterday"):
        result = call("show", "shop.balances", "--as-of", moment, "--lake", folder)
        assert result.exit_code == 2
        assert result.stderr.startswith("error: ")
        assert "\n" not in result.stderr.strip()


def test_a_rollback_that_nobody_can_be_asked_about_needs_yes(shop, folder):
    first = shop.history(balances)[-1]
    refused = call("rollback", "shop.balances", "--to", str(first.id), "--lake", folder)
    assert (refused.exit_code, shop.count(balances)) == (2, 2)
    planned = f"shop.balances holds 2 rows, and would hold 1 at snapshot {first.id}: 1 commit undone"
    assert planned in refused.stderr
    assert "Nobody is there to be asked; --yes rolls back without asking" in refused.stderr
    done = call("rollback", "shop.balances", "--to", str(first.id), "--lake", folder, "--yes")
    assert done.stdout == f"shop.balances is at snapshot {first.id} again: 1 row\n"
    assert shop.head(balances).id == first.id


@pytest.mark.parametrize("target", ["nosuch", "1", "2001-01-01"])
def test_a_wrong_target_of_a_rollback_is_named_before_the_question(shop, folder, target):
    result = call("rollback", "shop.balances", "--to", target, "--lake", folder)
    assert result.exit_code == 2
    assert target in result.stderr
    assert "Nobody is there" not in result.stderr
    assert shop.count(balances) == 2


def test_a_rollback_to_the_head_says_that_nothing_moved(shop, folder):
    head = shop.head(balances)
    result = call("rollback", "shop.balances", "--to", str(head.id), "--lake", folder, "--yes")
    assert result.stdout == f"shop.balances stays at snapshot {head.id}: it is the head\n"


@pytest.fixture
def declared(tmp_path, monkeypatch) -> Path:
    """A package that declares `shop.balances` as the sum alone."""
    package = tmp_path / "declarations"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "shop.py").write_text(
        "import foldhouse as fh\n"
        "payments = fh.stream('shop.payments', schema={'customer': 'string', 'amount': 'decimal(12,2)'})\n"
        "balances = fh.table('shop.balances', source=payments, keys='customer',"
        " fold=fh.fold(balance=fh.total('amount')))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield package
    for name in ("declarations", "declarations.shop"):
        sys.modules.pop(name, None)


def test_rebuild_folds_a_table_as_it_is_declared_now(shop, folder, declared):
    result = call("rebuild", "shop.balances", "--declared-in", "declarations", "--lake", folder)
    assert result.stdout.startswith("shop.balances was folded again from 3 rows: 2 rows, snapshot "), result.stderr
    rows = objects(call("show", "shop.balances", "--lake", folder, "--json"))
    assert rows == [{"customer": "ada", "balance": "12.50"}, {"customer": "bob", "balance": "5.00"}]


def test_rebuild_says_where_it_looked_for_a_declaration(shop, folder, declared):
    result = call("rebuild", "shop.balance", "--declared-in", "declarations", "--lake", folder)
    assert result.stderr == "error: declarations declares no table shop.balance; it declares shop.balances\n"
    result = call("rebuild", "shop.balances", "--declared-in", "nowhere", "--lake", folder)
    assert "there is no package 'nowhere'" in result.stderr
    assert "--declared-in" in result.stderr


def test_a_rebuild_can_be_looked_at_before_it_is_published(shop, folder, declared):
    before = shop.head(balances).id
    result = call("rebuild", "shop.balances", "--declared-in", "declarations", "--lake", folder, "--no-publish")
    assert result.stdout.endswith(" in foldhouse-rebuild\n"), result.stderr
    branch = objects(call("show", "shop.balances", "--lake", folder, "--as-of", "foldhouse-rebuild", "--json"))
    assert branch == [{"customer": "ada", "balance": "12.50"}, {"customer": "bob", "balance": "5.00"}]
    assert shop.head(balances).id == before
    published = call("publish", "shop.balances", "--lake", folder)
    assert published.stdout == f"shop.balances is at snapshot {shop.head(balances).id}\n"
    assert objects(call("show", "shop.balances", "--lake", folder, "--json")) == branch
    again = call("publish", "shop.balances", "--lake", folder)
    assert again.stdout == f"shop.balances stays at snapshot {shop.head(balances).id}\n"


def test_publishing_without_a_rebuild_says_how_to_come_to_one(shop, folder):
    result = call("publish", "shop.balances", "--lake", folder)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "`foldhouse rebuild --no-publish shop.balances` to fold one" in result.stderr


def test_compact_writes_the_files_of_all_tables_anew_and_says_what_it_came_to(shop, folder):
    for number in range(4):
        land(shop, paid(f"customer {number}", "1.00"))
    before = sorted(map(str, shop.to_arrow(payments).to_pylist()))
    table, stream = objects(call("compact", "--lake", folder, "--json"))
    assert (table["table"], table["committed"], table["files_removed"]) == ("shop.balances", False, 0)
    assert (stream["table"], stream["committed"], stream["rows_written"]) == ("shop.payments", True, 7)
    assert (stream["files_removed"], stream["files_added"]) == (6, 1)
    assert stream["snapshot_id"] == str(shop.head(payments).id)
    assert sorted(map(str, shop.to_arrow(payments).to_pylist())) == before
    again = call("compact", "shop.payments", "--lake", folder)
    assert again.stdout.splitlines() == [
        "table\tpartitions\tfiles_removed\tfiles_added\tbytes_removed\tbytes_added",
        "shop.payments\t0\t0\t0\t0\t0",
    ]


def test_expire_removes_what_is_old_and_holds_where_tables_stand(shop, folder):
    at = str(shop.head(payments).id)
    land(shop, paid("cyd", "1.00"))
    stream = objects(
        call("expire", "shop.payments", "--lake", folder, "--older-than", "0d", "--keep-last", "1", "--json")
    )
    assert stream == [
        {
            "table": "shop.payments",
            "committed": True,
            "snapshots_removed": 0,
            "snapshots_left": 3,
            "files_deleted": 0,
            "bytes_freed": 0,
            "files_outside": 0,
            "held": {"foldhouse.position.shop.balances": at},
            "tags_dropped": [],
        }
    ]
    lines = call("expire", "--lake", folder).stdout.splitlines()
    assert lines[0] == "table\tsnapshots_removed\tsnapshots_left\tfiles_deleted\tbytes_freed"
    assert lines[1:] == ["shop.balances\t0\t2\t0\t0", "shop.payments\t0\t3\t0\t0"]


def test_an_age_that_is_none_is_an_error_in_one_line(shop, folder):
    result = call("expire", "--lake", folder, "--older-than", "yesterday")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: 'yesterday' is no age such as 7d")


@pytest.mark.slow
def test_a_pipe_that_is_closed_early_is_no_error(shop, folder):
    land(shop, *(paid(f"customer {number}", "1.00") for number in range(20_000)))
    command = f"set -o pipefail; {Path(sys.executable).parent}/foldhouse show shop.payments --lake {folder} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "paid_at\tcustomer\tamount\tnote\n"
    assert (done.stderr, done.returncode) == ("", 141)  # as of `cat`; 1 would say that rows are wrong


@pytest.mark.parametrize("words", ["show shop.payments --json", "trace shop.balances ada", "history shop.payments"])
def test_a_pipe_that_nobody_reads_is_no_error(shop, folder, words):
    reader, writer = os.pipe()
    os.close(reader)
    command = [f"{Path(sys.executable).parent}/foldhouse", *words.split(), "--lake", folder]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.stderr, done.returncode) == ("", 141)


@pytest.mark.parametrize(
    ("command", "code"),
    [("tables LAKE 2>&-", 0), ("show shop.nothing LAKE >&-", 2), ("rollback shop.balances --to 1 LAKE 0<&-", 2)],
)
def test_a_stream_that_the_caller_closed_is_no_error(shop, folder, command, code):
    words = f"{Path(sys.executable).parent}/foldhouse {command.replace('LAKE', f'--lake {folder}')}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


def test_text_that_standard_output_cannot_encode_is_escaped(shop, folder):
    land(shop, paid("łódź \U0001f600", "1.00"))
    command = [f"{Path(sys.executable).parent}/foldhouse", "show", "shop.payments", "--lake", folder]
    env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    text = subprocess.run(command, capture_output=True, env=env, check=True).stdout.decode("latin-1")
    assert "\t\\u0142ód\\u017a \\U0001f600\t" in text
    lines = subprocess.run([*command, "--json"], capture_output=True, env=env, check=True).stdout.decode("latin-1")
    assert "łódź \U0001f600" in {json.loads(line)["customer"] for line in lines.splitlines()}


def test_a_mistyped_command_is_answered_with_the_one_that_was_meant():
    result = call("statuss")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (
        2,
        "Error: there is no command 'statuss'; did you mean status?",
    )
    assert "No such command 'xyzzy'" in call("xyzzy").stderr


@pytest.mark.slow
def test_reading_imports_neither_dagster_nor_starts_a_jvm(shop, folder):
    code = (
        "import sys; from foldhouse.cli import main\n"
        f"main(['show', 'shop.balances', '--lake', {folder!r}], standalone_mode=False)\n"
        "from pyspark import SparkContext\n"
        "assert SparkContext._gateway is None and 'dagster' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["init", "--help"], ["nosuch"]])
def test_the_list_of_commands_is_printed_without_importing_them(words):
    code = (
        "import click, contextlib, sys; from foldhouse.cli import main\n"
        f"with contextlib.suppress(click.UsageError): main({words!r}, standalone_mode=False)\n"
        "heavy = {'dagster', 'pyiceberg', 'pyarrow', 'polars', 'pyspark', 'sqlalchemy', 'pandas', 'numpy', 'yaml'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_options_of_any_command_are_printed_without_importing_what_it_needs_to_run():
    code = (
        "import click, sys; from foldhouse.cli.main import SUBCOMMANDS, main\n"
        "needed = {'dagster', 'duckdb', 'numpy', 'pandas', 'polars', 'pyarrow', 'pydantic', 'pyiceberg', 'pyspark'}\n"
        "for name in SUBCOMMANDS:\n"
        "    command = main.get_command(click.Context(main), name)\n"
        "    command.get_help(click.Context(command, info_name=name))\n"
        "    assert not needed & set(sys.modules), (name, needed & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_the_line_of_a_command_in_the_list_is_the_first_of_its_own_help(name):
    command = main.get_command(click.Context(main), name)
    assert (command.name, command.get_short_help_str(limit=200)) == (name, SUBCOMMANDS[name][1])


def test_a_catalog_that_is_no_catalog_is_one_line(tmp_path):
    (tmp_path / "catalog.db").write_text("no database at all, but long enough to be looked at" * 100)
    result = call("tables", "--lake", str(tmp_path))
    assert result.exit_code == 3
    assert result.stderr.startswith(f"error: {tmp_path / 'catalog.db'} is not a SQLite database")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("0E-4"), "0.0000"),
        (Decimal("1234567890123456789012345.5"), "1234567890123456789012345.5"),
        (datetime(2024, 3, 4, 9, 0, 0, 5), "2024-03-04T09:00:00.000005"),
        (datetime(2024, 3, 4, 9, tzinfo=UTC), "2024-03-04T09:00:00+00:00"),
        (date(2024, 3, 4), "2024-03-04"),
        (time(9, 30), "09:30:00"),
        (b"\x00\xff", "AP8="),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (1.5, 1.5),
        (True, True),
        (None, None),
        ([{"a": Decimal("1.0")}, None], [{"a": "1.0"}, None]),
        ([("key", Decimal("1.0"))], [{"key": "key", "value": "1.0"}]),
    ],
)
def test_a_value_in_json(value, expected):
    assert plain(value) == expected
    assert type(plain(value)) is type(expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("two\tfields\nand lines", "two\\tfields\\nand lines"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("C:\\t", "C:\\\\t"),
        ("[bold]", "[bold]"),
        (None, ""),
        ([{"stock_code": "21034", "units": 9}], '[{"stock_code": "21034", "units": 9}]'),
    ],
)
def test_a_value_on_one_line(value, expected):
    assert text_of(value) == expected


def test_what_a_terminal_acts_on_is_written_out_in_every_way_of_printing(lake, folder):
    attack = "a\x1b]0;x\x07\x7f\x9b2J\u202eb"
    land(lake, paid(attack, "1.00"))
    for words in ([], ["--json"]):
        shown = call("show", "shop.payments", *words, "--lake", folder).stdout
        assert all(one.isprintable() or one in "\t\n" for one in shown)
    assert json.loads(shown)["customer"] == attack
    failed = call("show", f"shop.{attack}", "--lake", folder)
    assert failed.exit_code == 2
    assert all(one.isprintable() or one == "\n" for one in failed.stderr)


def test_markup_and_escapes_in_values_do_not_reach_the_terminal(lake, folder):
    land(lake, paid("ada", "1.00", note="[red]\x1b[2Jgone[/red]"))
    shown = call("show", "shop.payments", "--lake", folder, terminal=True).stdout
    assert "[red]\\x1b[2Jgone[/red]" in shown
    assert "\x1b[2J" not in shown


def test_a_moment_is_printed_in_utc_to_the_millisecond():
    elsewhere = timezone(timedelta(hours=2))
    assert utc_text(datetime(2024, 3, 4, 11, 0, 0, 7_000, elsewhere)) == "2024-03-04T09:00:00.007Z"


def test_text_gives_way_on_a_narrow_terminal_and_numbers_do_not():
    columns = [Column("a", is_folded=True), Column("b", is_number=True), Column("c", is_folded=True)]
    assert _widths(columns, [40, 10, 20], 60) == [24, 10, 20]
    assert _widths(columns, [40, 10, 20], 10) == [16, 10, 16]
    assert _widths(columns, [4, 10, 2], 10) == [4, 10, 2]


def test_progress_without_a_terminal_is_a_line_for_each_table_that_is_done(tmp_path):
    printed = tmp_path / "printed"
    with printed.open("w") as screen, progress_of(screen) as progress:
        progress.start({"retail.sales": 2, "retail.products": 1})
        for day in (4, 4, 5):
            progress.committed("retail.sales", date(2024, 3, day))
        progress.committed("retail.products", None)
    assert printed.read_text() == "retail.sales: 2 days\nretail.products: done\n"
    assert progress.done == ["retail.sales", "retail.products"]


def test_a_commit_whose_parent_another_tool_expired_removed_no_negative_number_of_rows(shop, folder):
    iceberg = shop.load(payments)
    iceberg.maintenance.expire_snapshots().by_ids([shop.history(payments)[-1].id]).commit()
    (kept,) = objects(call("history", "shop.payments", "--lake", folder, "--json"))
    assert (kept["parent_id"], kept["written"], kept["removed"], kept["rows"]) == (None, 2, 0, 3)
