"""Landing files under a prefix of a bucket: what is read, what is refused, and what a store can do meanwhile."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import date
from pathlib import Path

import catalog_servers
import dagster as dg
import pytest
from contract.catalogs.conftest import Servers, configure
from http_proxy import Answer, HttpProxy, Request
from landing_days import DAY, HEADER, LINE, RETAIL, lenient, line_with, lines_of
from pyarrow.fs import S3FileSystem

import foldhouse as fh
from foldhouse.dagster import landing_asset, landing_sensor
from foldhouse.dagster.landing import CHECK
from foldhouse.errors import LandingError, StorageError, UnreadableFile
from foldhouse.landing import QUARANTINE_TYPES, CsvFormat, Landed, Landing

pytestmark = pytest.mark.heavy
BUCKET = catalog_servers.BUCKET
SECRET = catalog_servers.SECRET_KEY
FORMAT = lenient()


class Bucket:
    """A prefix of a bucket behind a proxy, with a client of its own."""

    def __init__(self, store: HttpProxy, prefix: str, given: dict[str, str]) -> None:
        self.store, self.prefix, self.given = store, prefix, given
        self.address = f"s3://{BUCKET}/{prefix}"
        self._client = S3FileSystem(
            endpoint_override=f"{store.server[0]}:{store.server[1]}",
            scheme="http",
            access_key=catalog_servers.ACCESS_KEY,
            secret_key=SECRET,
            region="us-east-1",
        )

    def put(self, name: str, content: str | bytes) -> None:
        with self._client.open_output_stream(f"{BUCKET}/{self.prefix}/{name}", compression=None) as stream:
            stream.write(content.encode() if isinstance(content, str) else content)

    def remove(self, name: str) -> None:
        self._client.delete_file(f"{BUCKET}/{self.prefix}/{name}")

    def landing(self, format: CsvFormat = FORMAT) -> Landing:
        return Landing(self.address, format, catalog="c")


@pytest.fixture
def bucket(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Bucket]:
    given = servers.store()
    with HttpProxy(given["s3.endpoint"]) as store:
        given = {**given, "s3.endpoint": store.address}
        configure(monkeypatch, "c", {"uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w", **given})
        yield Bucket(store, f"landing-{request.node.name.partition('[')[0][-40:]}-{tmp_path.name}", given)


def large(word: str) -> bytes:
    """A file that is read with several requests, of one size for words of one length."""
    return lines_of(*[line_with("Description", word)] * 200_000).encode()


def test_a_prefix_gives_what_a_folder_gives(bucket: Bucket, tmp_path: Path) -> None:
    files = {
        "2011-11-22.csv": lines_of(LINE, line_with("Quantity", "many"), LINE).encode(),
        "2011-11-23.csv.gz": gzip.compress(lines_of(LINE.replace("11-22", "11-23")).encode()),
        "2011-11-24.csv": f"{HEADER}\n".encode(),
        "2011-11-25.csv": large("WHITE").replace(b"2011-11-22", b"2011-11-25"),
        "notes.txt": b"of no day",
        "0000-01-01.csv": b"of no day",
    }
    for name, content in files.items():
        bucket.put(name, content)
        (tmp_path / name).write_bytes(content)
    bucket.put("deeper/2011-12-01.csv", "of another folder")
    there, here = bucket.landing(), Landing(tmp_path, FORMAT)
    assert there.days() == here.days() == [date(2011, 11, day) for day in (22, 23, 24, 25)]
    for day in [*here.days(), date(2011, 11, 30)]:
        assert there.read(day) == here.read(day)
    assert there.path(DAY) == f"{bucket.address}/2011-11-22.csv"
    assert there.path(date(2011, 11, 30)) is None


def test_a_look_changes_with_the_object_and_opens_none(bucket: Bucket) -> None:
    bucket.put("2011-11-22.csv", lines_of(LINE))
    landing = bucket.landing()
    first = landing.fingerprints()
    assert landing.fingerprints() == first
    bucket.store.taken()
    bucket.put("2011-11-22.csv", lines_of(LINE, LINE))
    bucket.put("2011-11-23.csv", lines_of(LINE))
    second = landing.fingerprints()
    assert list(second) == [DAY, date(2011, 11, 23)]
    assert second[DAY] != first[DAY]
    assert {one.path.partition("?")[0] for one in bucket.store.taken() if one.method == "GET"} == {f"/{BUCKET}"}


def test_two_objects_for_a_day_and_a_prefix_in_the_place_of_one_are_refused(bucket: Bucket) -> None:
    bucket.put("2011-11-22.csv", lines_of(LINE))
    bucket.put("2011-11-22.csv.gz", gzip.compress(lines_of(LINE).encode()))
    bucket.put("2011-11-23.csv/part", lines_of(LINE))
    bucket.put("2011-11-24.csv.gz", gzip.compress(lines_of(LINE).encode())[:-9])
    with pytest.raises(UnreadableFile, match=r"holds 2011-11-22\.csv and 2011-11-22\.csv\.gz for one day"):
        bucket.landing().read(DAY)
    with pytest.raises(UnreadableFile, match=rf"{bucket.address}/2011-11-23\.csv is a folder"):
        bucket.landing().read(date(2011, 11, 23))
    with pytest.raises(UnreadableFile, match="truncated or corrupt gzip"):
        bucket.landing().read(date(2011, 11, 24))


def test_a_prefix_with_nothing_under_it_is_no_day_without_events(bucket: Bucket) -> None:
    landing = bucket.landing()
    for look in (landing.days, landing.fingerprints, lambda: landing.path(DAY), lambda: landing.read(DAY)):
        with pytest.raises(LandingError, match=f"{bucket.address} has no object under it; name the bucket"):
            look()
    with pytest.raises(LandingError, match="s3://no-such-bucket/landing has no object under it"):
        Landing("s3://no-such-bucket/landing", FORMAT, catalog="c").days()


def test_an_object_that_is_replaced_while_it_is_read_is_refused(bucket: Bucket) -> None:
    """Both have the same size, and each request of its own would be answered well."""
    before, after = large("WHITE"), large("BLACK")
    assert len(before) == len(after)
    bucket.put("2011-11-22.csv", before)
    pieces = [0]

    def answer(request: Request) -> Answer | None:
        if request.method == "GET" and request.path.endswith(".csv"):
            pieces[0] += 1
            if pieces[0] == 2:
                bucket.put("2011-11-22.csv", after)
        return None

    bucket.store.answer = answer
    with pytest.raises(UnreadableFile, match="changed while it was read; run its day again"):
        bucket.landing().read(DAY)
    assert pieces[0] >= 2
    bucket.store.answer = None
    assert set(bucket.landing().read(DAY).events["description"].to_pylist()) == {"BLACK"}


def test_an_object_that_is_gone_while_it_is_read_is_one_error(bucket: Bucket) -> None:
    bucket.put("2011-11-22.csv", large("WHITE"))
    bucket.put("2011-11-23.csv", lines_of(LINE))
    seen = [0]

    def answer(request: Request) -> Answer | None:
        seen[0] += request.method == "GET" and request.path.endswith(".csv")
        if seen[0] == 2:
            seen[0] += 1
            bucket.remove("2011-11-22.csv")
        return None

    bucket.store.answer = answer
    with pytest.raises((UnreadableFile, StorageError), match=bucket.address):
        bucket.landing().read(DAY)


def test_a_store_that_throttles_is_asked_again(bucket: Bucket) -> None:
    bucket.put("2011-11-22.csv", lines_of(LINE, LINE))
    seen = [0]

    def answer(request: Request) -> Answer | None:
        seen[0] += 1
        return None if seen[0] % 3 else Answer(503, {}, b"<Error><Code>SlowDown</Code></Error>")

    bucket.store.answer = answer
    assert bucket.landing().days() == [DAY]
    assert bucket.landing().read(DAY).lines == 2
    assert seen[0] >= 6


@pytest.mark.parametrize("method", ["GET", "list"])
def test_a_body_that_ends_early_is_never_taken_for_the_whole(bucket: Bucket, method: str) -> None:
    """The proxy answers with a part of the body, as a broken cache would."""
    bucket.put("2011-11-22.csv", lines_of(*[LINE] * 5))
    bucket.put("2011-11-23.csv", lines_of(LINE))
    whole = bucket.landing()
    days, rows, shares = whole.days(), whole.read(DAY).events, (0.2, 0.5, 0.9)
    for share in shares:

        def answer(request: Request, share: float = share) -> Answer | None:
            is_list = "list-type" in request.path
            if request.method != "GET" or is_list != (method == "list"):
                return None
            theirs = bucket.store.ask(request)
            kept = {name: value for name, value in theirs.headers.items() if name.lower() != "content-length"}
            return Answer(theirs.status, kept, theirs.body[: int(len(theirs.body) * share)])

        bucket.store.answer = answer
        is_list = method == "list"
        said = "the store cannot be used" if is_list else "the store gave fewer bytes than it said"
        with pytest.raises(StorageError, match=said):
            bucket.landing().read(DAY)
        with pytest.raises(StorageError, match=said) if is_list else nullcontext():
            assert bucket.landing().days() == days
        bucket.store.answer = None
    assert bucket.landing().read(DAY).events == rows


def test_credentials_that_are_refused_are_one_error_without_them(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("2011-11-22.csv", lines_of(LINE))
    for status, code in ((403, b"InvalidAccessKeyId"), (400, b"ExpiredToken"), (403, b"AccessDenied")):
        body = b"<Error><Code>" + code + b"</Code><Message>" + SECRET.encode() + b"</Message></Error>"
        bucket.store.answer = lambda request, status=status, body=body: Answer(status, {}, body)  # type: ignore[misc]
        for look in (bucket.landing().days, lambda: bucket.landing().read(DAY)):
            # The reply to a HEAD has no body, so a 400 has no reason there.
            with pytest.raises(StorageError, match=r"refuses the credentials|HTTP status 400\) during Head") as failure:
                look()
            assert SECRET not in f"{failure.value!r} {failure.value.__cause__!r}"
    monkeypatch.setenv("PYICEBERG_CATALOG__C__S3__ENDPOINT", f"http://127.0.0.1:{catalog_servers.free_port()}")
    monkeypatch.setenv("PYICEBERG_CATALOG__C__S3__RETRY_STRATEGY_IMPL", "pyarrow.fs.AwsStandardS3RetryStrategy")
    with pytest.raises(StorageError, match="the store cannot be used"):
        bucket.landing().days()


def test_credentials_may_come_from_the_environment_alone(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("2011-11-22.csv", lines_of(LINE))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", catalog_servers.ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.store.address)
    assert Landing(bucket.address, FORMAT).read(DAY).lines == 1
    monkeypatch.setenv("FOLDHOUSE_LANDING", f"{bucket.address}/")
    assert Landing.from_environment(FORMAT).days() == [DAY]
    monkeypatch.setenv("FOLDHOUSE_CATALOG", "c")
    assert Landing.from_environment(FORMAT).catalog == "c"


class Opener:
    """The resource `landing`."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def open(self, format: CsvFormat) -> Landing:
        return self._bucket.landing(format)


class Lake:
    """The resource `lake`."""

    def __init__(self, lake: fh.Lake) -> None:
        self._lake = lake

    def open(self) -> fh.Lake:
        return self._lake


def test_the_asset_lands_from_a_bucket_and_the_sensor_asks_for_its_days(bucket: Bucket, tmp_path: Path) -> None:
    days = dg.DailyPartitionsDefinition("2011-11-20", end_date="2011-11-30", timezone="UTC")
    sales = fh.stream("b.sales", schema=RETAIL.types, event_time="invoiced_at", partition_by="day(invoiced_at)")
    bad = fh.stream("b.sales_quarantine", schema=QUARANTINE_TYPES, partition_by="day")
    asset = landing_asset(sales, bad, FORMAT, partitions_def=days)
    sensor = landing_sensor("b", job_name="b", format=FORMAT, partitions_def=days)
    jobs = [dg.define_asset_job("b", selection="*")]
    known = dg.Definitions(assets=[asset], jobs=jobs, sensors=[sensor], resources={"lake": 0, "landing": 0})
    repository = known.get_repository_def()
    lake = fh.Lake.local(tmp_path / "lake")
    given = {"lake": Lake(lake), "landing": Opener(bucket)}
    bucket.put("2011-11-22.csv", lines_of(LINE, LINE))
    bucket.put("2011-11-23.csv", "no header\n")

    def look(cursor: str | None) -> tuple[list[str], str | None]:
        given = {"cursor": cursor, "resources": {"landing": Opener(bucket)}, "repository_def": repository}
        with dg.build_sensor_context(**given) as context:
            tick = sensor.evaluate_tick(context)
        return [one.tags["foldhouse/days"] for one in tick.run_requests or []], tick.cursor

    def land(day: str) -> bool:
        with dg.DagsterInstance.ephemeral() as instance:
            options = {"resources": given, "partition_key": day, "instance": instance, "raise_on_error": False}
            done = dg.materialize([asset], **options)
            assert SECRET not in f"{instance.all_logs(done.run_id)}"
            return done.success

    asked, cursor = look(None)
    assert asked == ["2011-11-22..2011-11-23"]
    assert land("2011-11-22")
    assert not land("2011-11-23"), CHECK
    assert lake.to_arrow(sales).num_rows == 2
    assert look(cursor)[0] == []
    bucket.put("2011-11-23.csv", lines_of(LINE.replace("11-22", "11-23")))
    assert look(cursor)[0] == ["2011-11-23"]
    assert land("2011-11-23")
    assert lake.to_arrow(sales).num_rows == 3
    for name in lake.tables():
        assert SECRET not in lake.load(name).metadata.model_dump_json()
    lake.close()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("s3://key:a-secret@bucket/landing", "contains credentials"),
        ("s3://a-secret@bucket/landing", "contains credentials"),
        ("s3://bucket/landing?sig=a-secret", "contains credentials"),
        ("http://bucket/landing", "is in no store that is known"),
        ("s3:///landing", "is in no store that is known"),
        (Path("s3://bucket/landing"), "give it as a text, not as a Path"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(address: str | Path, said: str) -> None:
    with pytest.raises(LandingError, match=said) as failure:
        Landing(address, FORMAT)
    assert "a-secret" not in str(failure.value)


def test_the_files_of_several_days_are_waited_for_together(bucket: Bucket) -> None:
    days = [date(2011, 11, number) for number in range(1, 13)]
    for number, day in enumerate(days):
        bucket.put(f"{day}.csv", lines_of(*[LINE.replace("2011-11-22", str(day))] * (number + 1)))
    bucket.put("2011-11-05.csv", "another header\n")
    bucket.remove("2011-11-07.csv")
    landing = bucket.landing()
    bucket.store.most_at_once, bucket.store.wait_seconds = 0, 0.05
    try:
        found = list(landing.read_each(days))
    finally:
        bucket.store.wait_seconds = 0.0
    assert bucket.store.most_at_once >= 4
    assert [day for day, _ in found] == days
    assert isinstance(dict(found)[date(2011, 11, 5)], UnreadableFile)
    for day, one in found:
        assert isinstance(one, UnreadableFile) or one == landing.read(day)


def test_files_that_may_become_large_are_read_one_by_one(bucket: Bucket) -> None:
    days = [date(2011, 11, number) for number in (22, 23, 24)]
    for day in days:
        lines = lines_of(*[LINE.replace("2011-11-22", str(day))] * 50_000)
        bucket.put(f"{day}.csv.gz", gzip.compress(lines.encode()) + bytes(700_000))  # padding, which it may have
    bucket.store.most_at_once = 0
    assert [day for day, one in bucket.landing().read_each(days) if isinstance(one, Landed)] == days
    assert bucket.store.most_at_once == 1
