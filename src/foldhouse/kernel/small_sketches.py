"""Small sketches of many keys at once: the bytes that Apache DataSketches would write, made with numpy.

A sketch of up to seven values is a list of coupons in the order in which they came. Up to 24, it is a hash table of 32
coupons with open addressing. Larger ones are hash tables of other sizes and registers, which the library makes one by
one.

    list      header of 8 bytes, the number of coupons in byte 6; 8 coupons
    table     header of 8 bytes, the number of coupons in 4; 32 coupons
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foldhouse.kernel.coupons import ADDRESS_BITS, Coupons

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

MOST = 24
"""The most coupons of a small sketch: with one more, the library doubles the table."""
_LISTED, _PLACES = 8, 32
_MOST_LISTED = _LISTED - 1
LIST_BYTES, TABLE_BYTES = 8 + 4 * _LISTED, 12 + 4 * _PLACES
_LIST_HEADER = np.array([2, 1, 7, 12, 3, 0, 0, 8], np.uint8)
_TABLE_HEADER = np.array([3, 1, 7, 12, 5, 0, 0, 9], np.uint8)
_FLAGS, _COUNT, _IS_EMPTY = 5, 6, 4


@dataclass
class Small:
    """Some small sketches, each with its coupons as a list and as a table.

    Args:
        listed: the first eight coupons, in order.
        table: the coupons at their places.
        counts: how many there are.
    """

    listed: Coupons
    table: Coupons
    counts: Places

    @classmethod
    def empty(cls, number: int) -> Small:
        """Return sketches without values."""
        return cls(
            np.zeros((number, _LISTED), np.uint32), np.zeros((number, _PLACES), np.uint32), np.zeros(number, np.int64)
        )

    def read_lists(self, at: Places, lists: Bytes) -> None:
        """Take over the coupons of lists: one row of bytes for each place in `at`."""
        coupons = np.ascontiguousarray(lists[:, 8:]).view("<u4")
        for place in range(_LISTED):
            some = np.flatnonzero(lists[:, _COUNT] > place)
            self.insert(at[some], coupons[some, place])

    def read_tables(self, at: Places, tables: Bytes) -> None:
        """Take over tables: one row of bytes for each place in `at`."""
        self.table[at] = np.ascontiguousarray(tables[:, 12:]).view("<u4")
        self.counts[at] = np.ascontiguousarray(tables[:, 8:12]).view("<u4")[:, 0]

    def insert(self, at: Places, coupons: Coupons) -> None:
        """Insert one coupon into each of some sketches, all different; a coupon that is there is left out."""
        probes = (coupons & np.uint32(_PLACES - 1)).astype(np.int64)
        addresses = coupons & np.uint32((1 << ADDRESS_BITS) - 1)
        strides = ((addresses >> np.uint32(5)) | np.uint32(1)).astype(np.int64)
        while len(at):
            found = self.table[at, probes]
            free = np.flatnonzero(found == 0)
            self._take(at[free], probes[free], coupons[free])
            on = np.flatnonzero((found != 0) & (found != coupons))
            at, coupons, strides = at[on], coupons[on], strides[on]
            probes = (probes[on] + strides) % _PLACES

    def _take(self, at: Places, places: Places, coupons: Coupons) -> None:
        self.table[at, places] = coupons
        counts = self.counts[at]
        few = counts < _LISTED
        self.listed[at[few], counts[few]] = coupons[few]
        self.counts[at] = counts + 1

    def written(self) -> tuple[Places, Bytes, Places, Bytes]:
        """Return the places of the lists, their bytes, the places of the tables and their bytes."""
        is_list = self.counts <= _MOST_LISTED
        lists, tables = np.flatnonzero(is_list), np.flatnonzero(~is_list)
        return lists, self._lists(lists), tables, self._tables(tables)

    def _lists(self, at: Places) -> Bytes:
        made = np.empty((len(at), LIST_BYTES), np.uint8)
        made[:, :8] = _LIST_HEADER
        made[:, _COUNT] = self.counts[at]
        made[:, _FLAGS] = np.where(self.counts[at] == 0, _IS_EMPTY, 0)
        made[:, 8:] = self.listed[at].astype("<u4").view(np.uint8)
        return made

    def _tables(self, at: Places) -> Bytes:
        made = np.empty((len(at), TABLE_BYTES), np.uint8)
        made[:, :8] = _TABLE_HEADER
        made[:, 8:12] = self.counts[at].astype("<u4")[:, None].view(np.uint8)
        made[:, 12:] = self.table[at].astype("<u4").view(np.uint8)
        return made


def are_lists(lists: Bytes) -> npt.NDArray[np.bool_]:
    """Whether rows of `LIST_BYTES` are lists as the library writes them."""
    counts = lists[:, _COUNT].astype(np.int64)
    expected = np.tile(_LIST_HEADER, (len(lists), 1))
    expected[:, _COUNT] = counts
    expected[:, _FLAGS] = np.where(counts == 0, _IS_EMPTY, 0)
    is_taken = np.ascontiguousarray(lists[:, 8:]).view("<u4") != 0
    in_order = is_taken == (np.arange(_LISTED) < counts[:, None])
    return np.asarray((lists[:, :8] == expected).all(1) & in_order.all(1) & (counts <= _MOST_LISTED))


def are_tables(tables: Bytes) -> npt.NDArray[np.bool_]:
    """Whether rows of `TABLE_BYTES` are tables as the library writes them."""
    counts = np.ascontiguousarray(tables[:, 8:12]).view("<u4")[:, 0]
    taken = (np.ascontiguousarray(tables[:, 12:]).view("<u4") != 0).sum(1)
    is_small = (counts > _MOST_LISTED) & (counts <= MOST) & (taken == counts)
    return np.asarray((tables[:, :8] == _TABLE_HEADER).all(1) & is_small)
