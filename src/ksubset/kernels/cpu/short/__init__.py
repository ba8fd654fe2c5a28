"""Short rows, as many side by side as a vector has lanes: one lane, one row.

Arrays are (items, lanes), flat, with room for an even number of items. With so few items the
paper's O(nk) tables, in linear space thanks to the tilt, take less work than the nodes of long rows
(cpu/moments.py): a state is a handful of instructions for all lanes. Where more than half of the
items are chosen, lanes work on those left out: their logits change sign, which a covariance does
not notice. Items with logits that are, or are as good as, infinite are no coins, and put back where
all is done. Rows with anything out of the ordinary (no choice, a tilt that does not converge) are
odd: they are left to what works on long ones. No lane depends on the others, but for the last digit
of a product where their k differ.
"""

from __future__ import annotations

from ksubset.kernels.cpu.short.inference import SCALE, TOTALS, infer, logarithms, rarer_sides
from ksubset.kernels.cpu.short.lanes import (
    KEPT,
    MARKS,
    MOST_ITEMS,
    ODD,
    SHIFT,
    any_odd,
    convert,
    gather,
    gather_counts,
    is_short,
    keep,
    pairs,
    put_back,
    recall,
    room_for_coins,
    scatter,
)
from ksubset.kernels.cpu.short.product import covariance_product
from ksubset.kernels.cpu.short.sampling import decide, follow, keys_of, sample
from ksubset.kernels.cpu.short.swap import add_product
from ksubset.kernels.cpu.short.tilt import tilt, toss

__all__ = [
    "KEPT",
    "MARKS",
    "MOST_ITEMS",
    "ODD",
    "SCALE",
    "SHIFT",
    "TOTALS",
    "add_product",
    "any_odd",
    "convert",
    "covariance_product",
    "decide",
    "follow",
    "gather",
    "gather_counts",
    "infer",
    "is_short",
    "keep",
    "keys_of",
    "logarithms",
    "pairs",
    "put_back",
    "rarer_sides",
    "recall",
    "room_for_coins",
    "sample",
    "scatter",
    "tilt",
    "toss",
]
