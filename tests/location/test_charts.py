"""Charts in the metadata of assets: small enough for the page to show them inline, and well-formed."""

import base64
import re
from xml.etree import ElementTree

import pytest

from foldhouse.dagster.charts import MOST_CHARACTERS, bars, lines

SVG = "{http://www.w3.org/2000/svg}"


def drawn(markdown: str) -> ElementTree.Element:
    assert len(markdown) <= MOST_CHARACTERS < 1_000
    [data] = re.findall(r"^!\[[^\[\]]*\]\(data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)\)$", markdown)
    return ElementTree.fromstring(base64.b64decode(data))


def names(image: ElementTree.Element) -> list[str | None]:
    return [one.text for one in image.iter(f"{SVG}text")]


@pytest.mark.parametrize("size", [1.0, 1e-9, 1e15])
@pytest.mark.parametrize("points", [2, 3, 24, 5_000])
def test_three_lines_with_any_values_fit_and_stay_in_their_bands(size, points):
    values = [size * (number * 7919 % 1_000 - 500) for number in range(points)]
    image = drawn(lines(("rows", values), ("lag", [0.0] * points), ("a < b & c", values[::-1])))
    assert names(image) == ["rows", "lag", "a < b & c"]
    for place, path in enumerate(image.iter(f"{SVG}path")):
        numbers = [int(one) for one in re.findall(r"-?\d+", path.get("d", ""))]
        across, down = numbers[::2], numbers[1::2]
        heights = [sum(down[: count + 1]) for count in range(len(down))]
        assert 2 <= len(across) <= max(2, points)
        assert sum(across) == 240
        assert min(heights) >= place * 34
        assert max(heights) <= place * 34 + 22


def test_a_line_rises_when_its_values_rise():
    [path] = drawn(lines(("rows", [1, 2, 4]))).iter(f"{SVG}path")
    assert path.get("d") == "M0 21l120-7l120-13"


def test_lines_of_one_point_are_left_out():
    assert lines(("rows", [1.0]), ("lag", [])) == ""
    assert names(drawn(lines(("rows", [1.0]), ("cost", [1.0, 2.0])))) == ["cost"]


def test_bars_are_as_high_as_their_values_and_the_last_one_has_another_colour():
    image = drawn(bars("rows", [0, 5, 10]))
    before, last = image.iter(f"{SVG}path")
    assert re.findall(r"v-(\d+)", before.get("d", "")) == ["0", "11"]
    assert re.findall(r"v-(\d+)", last.get("d", "")) == ["22"]
    assert before.get("stroke") != last.get("stroke")


def test_bars_of_many_days_or_of_none_fit():
    assert names(drawn(bars("rows", [10**15] * 400))) == ["rows"]
    assert names(drawn(bars("rows", [0]))) == ["rows"]
    assert bars("rows", []) == ""


def test_a_name_with_brackets_does_not_end_the_description():
    assert names(drawn(bars("rows [of] days", [1, 2]))) == ["rows [of] days"]
