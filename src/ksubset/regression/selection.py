"""The search for the support of a model by likelihood: swaps from several starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ksubset.regression.likelihoods import Array, Likelihood
from ksubset.regression.local import Local
from ksubset.regression.newton import Design, Fits, fit

# Swaps of which the loss is computed, those that the quadratic model prefers; more before a support
# is taken for the best.
_TRIED, _TRIED_LAST = 16, 64
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
    if not 1 <= k <= x.shape[1]:
        raise ValueError(f"k must be between 1 and {x.shape[1]}, got {k}")
    design = Design.of(x, likelihood, alpha, fit_intercept)
    found = _forward(likelihood, design, k)
    if not search or k == x.shape[1]:
        return _unscaled(design, found, 0)
    wide = min(2 * k, x.shape[1], max(k, len(x) // 3))
    supports = [
        _eliminated(likelihood, design, _forward(likelihood, design, wide, found), k).supports[0],
        _screened(likelihood, design, k),
        *_smoothed(likelihood, design, k),
        *starts,
    ]
    ends: dict[tuple[int, ...], Fits] = {}
    swaps = 0
    for start in (found, *(fit(likelihood, design, support[None]) for support in supports)):
        end, made = _descend(likelihood, design, start, ends)
        ends[tuple(np.sort(end.supports[0]).tolist())] = end
        swaps += made
    best = min(ends.values(), key=lambda end: float(end.values[0]))
    best, made = _descend(likelihood, design, best, {}, _TRIED_LAST)
    return _unscaled(design, best, swaps + made)


def _unscaled(design: Design, found: Fits, swaps: int) -> Selection:
    order = np.argsort(found.supports[0])
    support = found.supports[0][order]
    weights = found.coefficients[0][: len(support)][order] / design.scale[support][:, None]
    level = found.coefficients[0][-1] if design.constant else np.zeros(weights.shape[1])
    constant = level - design.centre[support] @ weights if design.constant else level
    return Selection(support, weights, constant, float(found.values[0]), swaps)


def _forward(likelihood: Likelihood, design: Design, k: int, found: Fits | None = None) -> Fits:
    """The column with the largest score is added to the model, again and again."""
    if found is None:
        found = fit(likelihood, design, np.zeros((1, 0), dtype=np.int64))
    while found.supports.shape[1] < k:
        new = int(Local.of(likelihood, design, found).additions().argmax())
        place = found.supports.shape[1]
        supports = np.append(found.supports, [[new]], 1)
        found = fit(likelihood, design, supports, np.insert(found.coefficients, place, 0, 1))
    return found


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
        end, _ = _descend(likelihood, smooth, _forward(likelihood, smooth, k), {})
        supports.append(end.supports[0])
    return supports


def _descend(
    likelihood: Likelihood,
    design: Design,
    found: Fits,
    ends: dict[tuple[int, ...], Fits],
    tried: int = _TRIED,
) -> tuple[Fits, int]:
    """Swaps while one lowers the loss, and how many; ends early where another search ended."""
    swaps = 0
    while tuple(np.sort(found.supports[0]).tolist()) not in ends:
        supports, coefficients = _candidates(Local.of(likelihood, design, found), found, tried)
        fits = fit(likelihood, design, supports, coefficients)
        place = int(fits.values.argmin())
        if not fits.values[place] < (1 - _LOWER) * found.values[0]:
            break
        found, swaps = fits.one(place), swaps + 1
    return found, swaps


def _candidates(local: Local, found: Fits, tried: int) -> tuple[Array, Array]:
    """Supports after the most promising swaps, (b, k), and coefficients to start from."""
    support, k, n = local.support, len(local.support), len(local.gradient)
    gains = local.swaps().ravel()
    possible = min(tried, k * (n - k))
    single = np.argpartition(-gains, possible - 1)[:possible]
    places = [np.array([place]) for place in single // n]
    columns = [np.array([column]) for column in single % n]
    # Several at once: those that cost least for those that gain most.
    cheap, good = np.argsort(local.removals()), np.argsort(-local.additions())
    for count in range(2, min(_MOST_AT_ONCE, k, n - k) + 1):
        places.append(cheap[:count])
        columns.append(good[:count])
    supports = np.repeat(support[None], len(places), 0)
    coefficients = np.repeat(found.coefficients[:1], len(places), 0)
    for row, (out, new) in enumerate(zip(places, columns, strict=True)):
        supports[row, out] = new
        coefficients[row, out] = 0
    return supports, coefficients
