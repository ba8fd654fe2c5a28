"""The search for the support of a model by likelihood: swaps from several starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ksubset.regression.likelihoods import Array, Likelihood
from ksubset.regression.local import Local
from ksubset.regression.newton import Design, Fits, fit

# Swaps are tried in the order that the quadratic model prefers, so many at a time, until some lower
# the loss; the last lot only for what would be the result.
_LOTS, _LAST_LOT = (4, 12), 48
# Searches from the starts are among the columns with the largest scores: as many as make so many
# numbers, and at least so many for each one to choose. With fewer, supports are worse where a few
# columns almost separate the classes.
_POOL_NUMBERS, _POOL_EACH = 1_000_000, 20
# Columns that are swapped at once, at most.
_MOST_AT_ONCE = 5
# Ridge penalties, for every unit of weight, under which some searches start: they smooth the
# loss where a few columns almost separate the classes.
_SMOOTHING = (1e-1, 1e-2, 1e-3)
# A loss is lower if it is by this share.
_LOWER = 1e-9


@dataclass(frozen=True)
class Selection:
    """A model on k of the columns.

    Attributes:
        support: ascending, (k,).
        coefficients: of these columns, (k, t).
        constant: the constant term, (t,).
        loss: with the penalty.
        swaps: how many led to it.

    Examples:
        >>> import numpy as np
        >>> from ksubset.regression import Selection
        >>> model = Selection(np.array([4]), np.array([[2.0]]), np.zeros(1), 0.5, 0)
        >>> model.support.tolist(), model.loss
        ([4], 0.5)
    """

    support: Array
    coefficients: Array
    constant: Array
    loss: float
    swaps: int


def select(
    x: Array,
    likelihood: Likelihood,
    k: int,
    *,
    alpha: float = 0.0,
    fit_intercept: bool = True,
    search: bool = True,
    starts: Sequence[Array] = (),
) -> Selection:
    r"""The k columns with the smallest loss, as far as swaps lead:
    :math:`\min_w \ell(X w + b) + \frac{\alpha}{2} \|w\|^2`.

    Swaps start from forward selection, from backward elimination of twice as many columns, from the
    columns with the largest scores in the model without any, from the supports that forward
    selection and swaps find under larger ridge penalties, and from the given supports. A quadratic
    model of the loss orders the swaps; the loss decides (docs/sparse-regression.md).

    Args:
        x: (m, n).
        likelihood: the loss, of the same m observations.
        k: how many columns.
        alpha: a ridge penalty; one of 1e-9 per unit of weight is always there, on standardised
            columns.
        fit_intercept: with a constant b.
        search: False returns what forward selection finds.
        starts: further supports to start from, (k,) each.

    Returns:
        The model.

    Examples:
        >>> import numpy as np
        >>> from ksubset.regression import Poisson, select
        >>> random = np.random.default_rng(0)
        >>> x = random.standard_normal((200, 20))
        >>> y = random.poisson(np.exp(x[:, 3] - x[:, 7] / 2))
        >>> model = select(x, Poisson(y, np.ones(200)), 2)
        >>> model.support.tolist(), model.coefficients.round(1).tolist()
        ([3, 7], [[1.0], [-0.5]])
    """
    if np.ndim(x) != 2 or len(x) != len(likelihood.weights):
        raise ValueError(
            f"x must be (m, n) with m = {len(likelihood.weights)}, as the likelihood has it, "
            f"got {np.shape(x)}"
        )
    if not 1 <= k <= x.shape[1]:
        raise ValueError(f"k must be between 1 and {x.shape[1]}, got {k}")
    design = Design.of(x, likelihood, alpha, fit_intercept)
    found, gains = _forward(likelihood, design, k)
    if not search or k == x.shape[1]:
        return _unscaled(design, found, 0)
    gains[found.supports] = np.inf
    gains[[column for start in starts for column in start]] = np.inf
    size = max(_POOL_NUMBERS // len(x), (_POOL_EACH + len(starts)) * k)
    pool = np.sort(np.argsort(-gains, kind="stable")[:size])
    inner = [np.searchsorted(pool, start) for start in (found.supports[0], *starts)]
    best, swaps = _search(likelihood, design.part(pool), k, inner)
    best = Fits(pool[best.supports], best.coefficients, best.values)
    best, made = _descend(likelihood, design, best, {}, (*_LOTS, _LAST_LOT))
    return _unscaled(design, best, swaps + made)


def _search(
    likelihood: Likelihood, design: Design, k: int, starts: Sequence[Array]
) -> tuple[Fits, int]:
    """The best end of swaps from many starts, the given ones and others, and how many swaps."""
    wide = min(2 * k, len(design.features), max(k, design.features.shape[1] // 3))
    supports = [
        *starts,
        _eliminated(likelihood, design, _forward(likelihood, design, wide)[0], k).supports[0],
        _screened(likelihood, design, k),
        *_smoothed(likelihood, design, k),
    ]
    ends: dict[tuple[int, ...], Fits] = {}
    swaps = 0
    for support in supports:
        start = fit(likelihood, design, support[None])
        end, made = _descend(likelihood, design, start, ends)
        ends[tuple(np.sort(end.supports[0]).tolist())] = end
        swaps += made
    return min(ends.values(), key=lambda end: float(end.values[0])), swaps


def _unscaled(design: Design, found: Fits, swaps: int) -> Selection:
    order = np.argsort(found.supports[0])
    support = found.supports[0][order]
    weights = found.coefficients[0][: len(support)][order] / design.scale[support][:, None]
    level = found.coefficients[0][-1] if design.constant else np.zeros(weights.shape[1])
    constant = level - design.centre[support] @ weights if design.constant else level
    return Selection(support, weights, constant, float(found.values[0]), swaps)


def _forward(likelihood: Likelihood, design: Design, k: int) -> tuple[Fits, Array]:
    """The column with the largest score is added to the model, again and again. Returns the largest
    score that each column ever had, (n,), too."""
    found = fit(likelihood, design, np.zeros((1, 0), dtype=np.int64))
    largest = np.zeros(len(design.features))
    while (place := found.supports.shape[1]) < k:
        gains = Local.of(likelihood, design, found).additions()
        largest = np.maximum(largest, gains)
        supports = np.append(found.supports, [[int(gains.argmax())]], 1)
        found = fit(likelihood, design, supports, np.insert(found.coefficients, place, 0, 1))
    return found, largest


def _eliminated(likelihood: Likelihood, design: Design, found: Fits, k: int) -> Fits:
    """The column that costs least is left out of the model, again and again."""
    while found.supports.shape[1] > k:
        out = int(Local.of(likelihood, design, found).removals().argmin())
        supports = np.delete(found.supports, out, 1)
        found = fit(likelihood, design, supports, np.delete(found.coefficients, out, 1))
    return found


def _screened(likelihood: Likelihood, design: Design, k: int) -> Array:
    """The columns with the largest scores in the model without any, (k,)."""
    nothing = fit(likelihood, design, np.zeros((1, 0), dtype=np.int64))
    scores = Local.of(likelihood, design, nothing).additions()
    return np.argsort(-scores, kind="stable")[:k]


def _smoothed(likelihood: Likelihood, design: Design, k: int) -> list[Array]:
    """Supports that forward selection and swaps find under larger ridge penalties, (k,) each."""
    supports = []
    for size in _SMOOTHING:
        penalty = np.maximum(design.penalty, size * likelihood.weights.sum())
        smooth = replace(design, penalty=penalty)
        end, _ = _descend(likelihood, smooth, _forward(likelihood, smooth, k)[0], {})
        supports.append(end.supports[0])
    return supports


def _descend(
    likelihood: Likelihood,
    design: Design,
    found: Fits,
    ends: dict[tuple[int, ...], Fits],
    lots: Sequence[int] = _LOTS,
) -> tuple[Fits, int]:
    """Swaps while one lowers the loss, and how many; ends early where another search ended."""
    swaps = 0
    while tuple(np.sort(found.supports[0]).tolist()) not in ends:
        better = _better(likelihood, design, found, lots)
        if better is None:
            break
        found, swaps = better, swaps + 1
    return found, swaps


def _better(
    likelihood: Likelihood, design: Design, found: Fits, lots: Sequence[int]
) -> Fits | None:
    """The model after the best swap of the first lot that has one; None where no lot has."""
    supports, coefficients = _candidates(Local.of(likelihood, design, found), found, sum(lots))
    enough = (1 - _LOWER) * float(found.values[0])
    start = 0
    for end in (*np.cumsum(lots), None):
        if start < len(supports):
            lot = slice(start, end)
            fits = fit(likelihood, design, supports[lot], coefficients[lot], enough)
            place = int(fits.values.argmin())
            if fits.values[place] < enough:
                return fits.one(place)
        start = end
    return None


def _candidates(local: Local, found: Fits, count: int) -> tuple[Array, Array]:
    """Supports after the most promising swaps of one column, best first, and then of several,
    (b, k); coefficients to start from, (b, q, t)."""
    support, k, n = local.support, len(local.support), len(local.gradient)
    gains = local.swaps().ravel()
    count = min(count, k * (n - k))
    single = np.argpartition(-gains, count - 1)[:count]
    single = single[np.argsort(-gains[single], kind="stable")]
    places = [np.array([place]) for place in single // n]
    columns = [np.array([column]) for column in single % n]
    # Several at once: those that cost least for those that gain most.
    cheap, good = np.argsort(local.removals()), np.argsort(-local.additions())
    for several in range(2, min(_MOST_AT_ONCE, k, n - k) + 1):
        places.append(cheap[:several])
        columns.append(good[:several])
    supports = np.repeat(support[None], len(places), 0)
    coefficients = np.repeat(found.coefficients[:1], len(places), 0)
    for row, (out, new) in enumerate(zip(places, columns, strict=True)):
        supports[row, out] = new
        coefficients[row, out] = 0
    return supports, coefficients
