"""Believable days of a gift wholesaler, in the format of the Online Retail files, the same bytes for the same seed.

    python examples/retail_days.py landing --first 2024-03-04 --days 14 --seed 7

Each day but Saturday has one file of 1,000 to 1,500 lines: invoices of some products each, a sixth of them without a
customer, cancellations of what was sold before, write-offs without a description or a price, and a few lines that are
broken. Each week some products are on offer.
`correct_day` rewrites the file of one day as a supplier's correction would.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from random import Random

HEADER = "InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country"

# stock code, description, price in pence
PRODUCTS = (
    ("10002", "INFLATABLE POLITICAL GLOBE", 85),
    ("15036", "ASSORTED COLOURS SILK FAN", 83),
    ("20685", "DOORMAT RED RETROSPOT", 795),
    ("20724", "RED RETROSPOT CHARLOTTE BAG", 85),
    ("20725", "LUNCH BAG RED RETROSPOT", 165),
    ("20727", "LUNCH BAG BLACK SKULL", 165),
    ("21034", "REX CASH+CARRY JUMBO SHOPPER", 95),
    ("21080", "SET/20 RED RETROSPOT PAPER NAPKINS", 85),
    ("21137", "BLACK RECORD COVER FRAME", 375),
    ("21175", "GIN AND TONIC DIET METAL SIGN", 255),
    ("21212", "PACK OF 72 RETROSPOT CAKE CASES", 55),
    ("21231", "SWEETHEART CERAMIC TRINKET BOX", 125),
    ("21314", "SMALL GLASS HEART TRINKET POT", 210),
    ("21506", "FANCY FONT BIRTHDAY CARD, ", 42),
    ("21731", "RED TOADSTOOL LED NIGHT LIGHT", 165),
    ("21754", "HOME BUILDING BLOCK WORD", 595),
    ("21931", "JUMBO STORAGE BAG SUKI", 208),
    ("21977", "PACK OF 60 PINK PAISLEY CAKE CASES", 55),
    ("22041", 'RECORD FRAME 7" SINGLE SIZE ', 255),
    ("22086", "PAPER CHAIN KIT 50'S CHRISTMAS ", 295),
    ("22112", "CHOCOLATE HOT WATER BOTTLE", 495),
    ("22138", "BAKING SET 9 PIECE RETROSPOT ", 495),
    ("22197", "SMALL POPCORN HOLDER", 85),
    ("22383", "LUNCH BAG SUKI DESIGN ", 165),
    ("22386", "JUMBO BAG PINK POLKADOT", 208),
    ("22411", "JUMBO SHOPPER VINTAGE RED PAISLEY", 208),
    ("22423", "REGENCY CAKESTAND 3 TIER", 1275),
    ("22457", "NATURAL SLATE HEART CHALKBOARD ", 295),
    ("22469", "HEART OF WICKER SMALL", 165),
    ("22633", "HAND WARMER UNION JACK", 210),
    ("22697", "GREEN REGENCY TEACUP AND SAUCER", 295),
    ("22720", "SET OF 3 CAKE TINS PANTRY DESIGN ", 495),
    ("22727", "ALARM CLOCK BAKELIKE RED ", 375),
    ("22745", "POPPY'S PLAYHOUSE BEDROOM ", 210),
    ("22760", "TRAY, BREAKFAST IN BED", 1275),
    ("22961", "JAM MAKING SET PRINTED", 145),
    ("23084", "RABBIT NIGHT LIGHT", 208),
    ("23203", "JUMBO BAG VINTAGE DOILY ", 208),
    ("23298", "SPOTTY BUNTING", 495),
    ("47566", "PARTY BUNTING", 495),
    ("71053", "WHITE METAL LANTERN", 375),
    ("79321", "CHILLI LIGHTS", 575),
    ("82482", "WOODEN PICTURE FRAME WHITE FINISH", 255),
    ("82567", "AIRLINE LOUNGE,METAL SIGN", 210),
    ("84029G", "KNITTED UNION FLAG HOT WATER BOTTLE", 375),
    ("84077", "WORLD WAR 2 GLIDERS ASSTD DESIGNS", 29),
    ("84879", "ASSORTED COLOUR BIRD ORNAMENT", 169),
    ("85099B", "JUMBO BAG RED RETROSPOT", 208),
    ("85123A", "WHITE HANGING HEART T-LIGHT HOLDER", 295),
    ("POST", "POSTAGE", 1800),
)
COUNTRIES = {
    "United Kingdom": 270,
    "Germany": 8,
    "France": 8,
    "EIRE": 4,
    "Spain": 3,
    "Netherlands": 2,
    "Belgium": 2,
    "Switzerland": 2,
    "Portugal": 2,
    "Norway": 1,
    "Australia": 1,
    "Japan": 1,
}  # country -> customers
CUSTOMERS = tuple(
    (str(12346 + 17 * at), country)
    for at, country in enumerate(country for country, customers in COUNTRIES.items() for _ in range(customers))
)
QUANTITIES = (1, 1, 1, 2, 2, 3, 4, 6, 6, 8, 10, 12, 12, 24, 24, 36, 48, 96)
FIRST_INVOICE = 536365
INVOICES_A_DAY, DAYS_OF_INVOICES = 200, 2300  # numbers stay of six digits, and come again after six years
OFFERS_A_WEEK = 5
SATURDAY = 5

_BROKEN = ("quantity", "date", "other day", "price", "stock code", "cut off", "loose comma")
_PRICE = re.compile(r"[0-9]+(\.[0-9]{1,2})?")


@dataclass(frozen=True)
class Summary:
    """The result of `write_days`: the days that have a file, and the numbers of lines in all files."""

    days: tuple[date, ...]
    lines: int
    cancelled: int
    without_customer: int
    broken: int


@dataclass(frozen=True)
class Repriced:
    """A line whose price was changed: its number in the file as it was, its product, and both prices."""

    line_number: int
    stock_code: str
    before: str
    after: str


@dataclass(frozen=True)
class Correction:
    """The result of `correct_day`: the file, the removed lines by number as raw text, and the changed prices.

    Line numbers are those of the file as it was, 1 for the first line after the header.
    """

    path: Path
    day: date
    removed: dict[int, str]
    repriced: tuple[Repriced, ...]


@dataclass(frozen=True)
class _Line:
    """One line of a file before it is written."""

    invoice: str
    stock_code: str
    description: str
    quantity: str
    at: str
    price: str
    customer: str
    country: str

    def text(self) -> str:
        return _csv(list(vars(self).values()))


def write_days(folder: Path, first: date, days: int, seed: int) -> Summary:
    """Write one `YYYY-MM-DD.csv` for each day from `first` that is not a Saturday.

    A file depends on its day and the seed alone, so that a day is the same whatever days are written with it. What is
    there under the same name is replaced.

    Args:
        folder: created where it is not there.
        first: the first day.
        days: how many calendar days, Saturdays included.
        seed: another seed, other days.
    """
    folder.mkdir(parents=True, exist_ok=True)
    trading = [first + timedelta(days=at) for at in range(days)]
    trading = [day for day in trading if day.weekday() != SATURDAY]
    cancelled = without_customer = broken = written = 0
    for day in trading:
        random = Random(f"{seed} {day}")
        lines = list(_sales(random, day, _on_offer(seed, day)))
        texts = [line.text() for line in lines]
        places = random.sample(range(len(lines)), random.randint(2, 6))
        for at in places:
            texts[at] = _broken(random.choice(_BROKEN), lines[at], day)
        whole = [line for at, line in enumerate(lines) if at not in places]
        cancelled += sum(line.invoice.startswith("C") for line in whole)
        without_customer += sum(line.customer == "" for line in whole)
        broken += len(places)
        written += len(lines)
        _replace(folder / f"{day}.csv", "\n".join([HEADER, *texts, ""]).encode())
    return Summary(tuple(trading), written, cancelled, without_customer, broken)


def correct_day(folder: Path, day: date, seed: int, removed: int = 20, repriced: int = 20) -> Correction:
    r"""Rewrite a day's file as a supplier's correction: some lines are gone, some have another price, the others stay.

    It takes any file of the format, compressed or not, with `\n` between lines and in no field. The file is replaced in
    one step; a link is replaced by a file, and what it pointed to stays as it was.

    Args:
        folder: the landing folder.
        day: a day that has a file.
        seed: which lines are hit.
        removed: how many lines to remove.
        repriced: how many other lines get another price.

    Raises:
        FileNotFoundError: the day has no file.
        ValueError: the file has too few whole lines with a positive price.
    """
    path = next((p for p in (folder / f"{day}.csv", folder / f"{day}.csv.gz") if p.exists()), None)
    if path is None:
        raise FileNotFoundError(f"{folder} has no file for {day}; write_days gives every day but Saturday one")
    header, *lines = _text(path).splitlines()
    fields = {number: next(csv.reader([line])) for number, line in enumerate(lines, start=1)}
    whole = [number for number, found in fields.items() if len(found) == 8 and _pence(found[5]) > 0]
    if len(whole) < removed + repriced:
        raise ValueError(
            f"{path} has {len(whole)} whole lines with a price, {removed + repriced} are to change; ask for fewer"
        )
    random = Random(f"{seed} {day} correction")
    hit = random.sample(whole, removed + repriced)
    gone = {number: lines[number - 1] for number in sorted(hit[:removed])}
    changes = []
    for number in sorted(hit[removed:]):
        before = fields[number][5]
        after = _price(_another(random, _pence(before)))
        changes.append(Repriced(number, fields[number][1], before, after))
        lines[number - 1] = _csv([*fields[number][:5], after, *fields[number][6:]])
    kept = [line for number, line in enumerate(lines, start=1) if number not in gone]
    _replace(path, "\n".join([header, *kept, ""]).encode())
    return Correction(path, day, gone, tuple(changes))


def _on_offer(seed: int, day: date) -> frozenset[str]:
    """Return the stock codes that are cheaper in the week of a day."""
    monday = day - timedelta(days=day.weekday())
    return frozenset(product[0] for product in Random(f"{seed} {monday} offers").sample(PRODUCTS[:-1], OFFERS_A_WEEK))


def _sales(random: Random, day: date, on_offer: frozenset[str]) -> Iterator[_Line]:
    """Yield a day's lines in the order of its invoices, cancellations and write-offs among them."""
    left = random.randint(1000, 1500)
    invoice = FIRST_INVOICE + day.toordinal() % DAYS_OF_INVOICES * INVOICES_A_DAY
    minute, sold = 8 * 60, list[_Line]()
    while left > 0:
        minute = min(minute + random.randint(1, 9), 18 * 60)
        at = f"{day} {minute // 60:02}:{minute % 60:02}:00"
        kind = random.random()
        if kind < 0.16 and sold:
            lines = _cancellation(random, invoice, at, sold)
        elif kind < 0.2:
            lines = [_write_off(random, invoice, at)]
        else:
            lines = _invoice(random, invoice, at, on_offer)
            sold.extend(line for line in lines if line.customer)
        yield from lines[:left]
        left -= len(lines)
        invoice += 1


def _invoice(random: Random, invoice: int, at: str, on_offer: frozenset[str]) -> list[_Line]:
    customer, country = random.choice(CUSTOMERS)
    if random.random() < 0.17:
        customer, country = "", "United Kingdom"
    products = random.sample(PRODUCTS[:-1], random.randint(1, 30))
    lines = []
    for stock_code, description, pence in products:
        quantity = random.choice(QUANTITIES)
        if stock_code in on_offer:
            pence = pence * 80 // 100
        if quantity >= 48:
            pence = pence * 85 // 100
        lines.append(_line(invoice, stock_code, description, quantity, at, pence, customer, country))
    if country != "United Kingdom":
        stock_code, description, pence = PRODUCTS[-1]
        lines.append(_line(invoice, stock_code, description, random.randint(1, 3), at, pence, customer, country))
    return lines


def _cancellation(random: Random, invoice: int, at: str, sold: list[_Line]) -> list[_Line]:
    """Return lines that take back what one customer bought; they do not name the invoice they cancel."""
    customer = random.choice(sold).customer
    bought = [line for line in sold if line.customer == customer]
    lines = []
    for line in random.sample(bought, min(len(bought), random.randint(1, 3))):
        fields = vars(line) | {
            "invoice": f"C{invoice}",
            "at": at,
            "quantity": str(-random.randint(1, int(line.quantity))),
        }
        lines.append(_Line(**fields))
    return lines


def _write_off(random: Random, invoice: int, at: str) -> _Line:
    stock_code = random.choice(PRODUCTS[:-1])[0]
    return _line(invoice, stock_code, "", -random.randint(1, 30), at, 0, "", "United Kingdom")


def _line(
    invoice: int, stock_code: str, description: str, quantity: int, at: str, pence: int, customer: str, country: str
) -> _Line:
    number = f"{customer}.0" if customer else ""
    return _Line(str(invoice), stock_code, description, str(quantity), at, _price(pence), number, country)


def _broken(how: str, line: _Line, day: date) -> str:
    """Return the text of a line that cannot be an event."""
    if how == "cut off":
        return ",".join(line.text().split(",")[:4])
    if how == "loose comma":
        before, _, after = line.text().partition(",")
        return f"{before},,{after}"
    changes = {
        "quantity": {"quantity": "six"},
        "date": {"at": f"{day:%d/%m/%Y} 25:61"},
        "other day": {"at": f"{day - timedelta(days=1)} 23:59:00"},
        "price": {"price": line.price.replace(".", ",") if "." in line.price else "n/a"},
        "stock code": {"stock_code": ""},
    }
    return _Line(**(vars(line) | changes[how])).text()


def _csv(fields: list[str]) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="").writerow(fields)
    return written.getvalue()


def _price(pence: int) -> str:
    """Write a price as the real files do: `2.55`, `2.1`, `18.0`."""
    return f"{pence // 100}.{pence % 100:02}".removesuffix("0")


def _pence(price: str) -> int:
    """Read a price, 0 where the text is no price in whole pence."""
    if not _PRICE.fullmatch(price):
        return 0
    pounds, _, rest = price.partition(".")
    return int(pounds) * 100 + int(rest.ljust(2, "0"))


def _another(random: Random, pence: int) -> int:
    """Return a positive price some 5 to 20 % away from the given one, and never the same."""
    change = max(1, pence * random.randint(5, 20) // 100)
    return pence - change if random.random() < 0.5 and pence > change else pence + change


def _text(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode()


def _replace(path: Path, content: bytes) -> None:
    """Put a file in place in one step, so that nobody reads half of it."""
    arriving = path.with_name(f".{path.name}.arriving")
    arriving.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    os.replace(arriving, path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write days of sales in the format of the Online Retail files.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--first", type=date.fromisoformat, default=date(2024, 3, 4), metavar="YYYY-MM-DD")
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    done = write_days(given.folder, given.first, given.days, given.seed)
    print(f"{len(done.days)} days with {done.lines:,} lines in {given.folder}: {done.cancelled:,} cancelled, ", end="")
    print(f"{done.without_customer:,} without a customer, {done.broken:,} broken")


if __name__ == "__main__":
    main()
