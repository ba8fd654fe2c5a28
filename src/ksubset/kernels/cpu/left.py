"""Lists of rows that a kernel leaves to the next one: a byte for each row, 0 for those it has done.

Most calls leave none, and take a list that is blank and stays so: to make one would take a tenth of
a small call.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

ALL = 0  # in place of a list's address
_FEWEST = 1 << 12


class Left(NamedTuple):
    """A blank list, and its address."""

    flags: Tensor
    address: int


_blank: list[Left] = []


def take(rows: int) -> Left:
    """A list for so many rows. Nobody else has it: what a signal's handler calls, or another
    thread, gets another one."""
    try:
        left = _blank.pop()
        if left.flags.shape[0] >= rows:
            return left
    except IndexError:
        pass
    flags = torch.zeros(max(rows, _FEWEST), dtype=torch.uint8)
    return Left(flags, flags.data_ptr())


def give_back(left: Left, used: bool) -> None:
    """For the next call."""
    if used:
        left.flags.zero_()
    _blank.append(left)
