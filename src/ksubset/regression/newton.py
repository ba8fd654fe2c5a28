"""Models on given supports, many at once, by Newton's method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ksubset.regression.likelihoods import Array, Likelihood

# The least ridge penalty, on columns of variance 1, for every unit of weight. Where classes can be
# separated the loss has no minimum without one: a penalty of this size ends the coefficients at
# about 20 over the margin, and changes those of other data in the ninth digit.
LEAST_PENALTY = 1e-9

# Newton's method has converged when the next step would gain less, as a share of the loss: by then
# each step squares the error.
_TOLERANCE = 1e-9
_LEAST_SHARE = 1e-12
_MOST_STEPS, _MOST_HALVINGS = 100, 40
# Numbers in the features of one batch.
_MOST_NUMBERS = 4_000_000


@dataclass
class Design:
    """Standardised columns.

    Attributes:
        features: of mean 0 and variance 1, as rows (n, m); a constant column is zero.
        penalty: ridge penalty of every column, (n,).
        constant: whether there is a constant term.
        centre: the columns' means, (n,).
        scale: what the columns were divided by, (n,).
        start: the constant term of the model without columns, (t,).
    """

    features: Array
    penalty: Array
    constant: bool
    centre: Array
    scale: Array
    start: Array

    @classmethod
    def of(cls, x: Array, likelihood: Likelihood, alpha: float, fit_intercept: bool) -> Design:
        """Of X (m, n), with the ridge penalty alpha / 2 on the squares of its coefficients."""
        features = np.ascontiguousarray(x[likelihood.order].T, dtype=np.float64)
        share = likelihood.weights / likelihood.weights.sum()
        # By the largest value first: squares of the largest numbers are out of range.
        size = np.abs(features).max(1)
        size[size == 0] = 1
        features /= size[:, None]
        centred = fit_intercept or not likelihood.constant
        centre = features @ share if centred else np.zeros(len(features))
        # Of a constant column rounding would leave something, and fit it.
        same = (features.min(1) == features.max(1)) if centred else np.zeros(len(features), bool)
        features -= centre[:, None]
        features[same] = 0
        spread = np.sqrt(np.square(features) @ share)
        spread[spread == 0] = 1
        features /= spread[:, None]
        with np.errstate(over="ignore"):
            asked = alpha / size / spread / size / spread
        least = LEAST_PENALTY * float(likelihood.weights.sum())
        penalty = np.clip(asked, least, 1e200)
        constant = fit_intercept and likelihood.constant
        start = likelihood.null() if constant else np.zeros(likelihood.outputs)
        return cls(features, penalty, constant, centre * size, size * spread, start)

    def part(self, columns: Array) -> Design:
        """With some of the columns."""
        return Design(
            self.features[columns], self.penalty[columns], self.constant,
            self.centre[columns], self.scale[columns], self.start,
        )  # fmt: skip

    def chosen(self, supports: Array) -> Array:
        """Features of supports (b, k) with the constant after them, (b, q, m)."""
        columns = self.features[supports]
        if not self.constant:
            return columns
        ones = np.ones((len(supports), 1, columns.shape[-1]))
        return np.concatenate([columns, ones], 1)

    def penalties(self, supports: Array) -> Array:
        """Of the coefficients of supports, (b, q)."""
        penalty = self.penalty[supports]
        return np.pad(penalty, [(0, 0), (0, 1)]) if self.constant else penalty


@dataclass
class Fits:
    """Models on supports.

    Attributes:
        supports: (b, k).
        coefficients: (b, q, t), the constant term last where there is one.
        values: their penalised losses, (b,).
    """

    supports: Array
    coefficients: Array
    values: Array

    def one(self, place: int) -> Fits:
        """That model by itself."""
        part = slice(place, place + 1)
        return Fits(self.supports[part], self.coefficients[part], self.values[part])


def fit(
    likelihood: Likelihood,
    design: Design,
    supports: Array,
    coefficients: Array | None = None,
    enough: float = np.inf,
) -> Fits:
    """The best models on supports (b, k), from coefficients (b, q, t) if they are given.

    A model whose loss will not fall below ``enough``, by twice what the quadratic model promises,
    is not fitted to the end.
    """
    q = supports.shape[1] + design.constant
    nothing = np.zeros((len(supports), q, likelihood.outputs))
    if design.constant:
        nothing[:, -1] = design.start
    if not q:  # np.linalg solves no systems of size 0
        eta = np.zeros((len(supports), likelihood.outputs, design.features.shape[1]))
        return Fits(supports, nothing, likelihood.value(eta))
    coefficients = nothing if coefficients is None else coefficients
    most = max(1, _MOST_NUMBERS // (coefficients[0].size * design.features.shape[1]))
    parts = []
    for i in range(0, len(supports), most):
        lot = slice(i, i + most)
        parts.append(
            _newton(likelihood, design, supports[lot], coefficients[lot], nothing[lot], enough)
        )
    return Fits(
        supports,
        np.concatenate([part[0] for part in parts]),
        np.concatenate([part[1] for part in parts]),
    )


def _newton(
    likelihood: Likelihood,
    design: Design,
    supports: Array,
    coefficients: Array,
    nothing: Array,
    enough: float,
) -> tuple[Array, Array]:
    """Coefficients and penalised losses of one batch; from nothing where a start is worse."""
    features, penalty = design.chosen(supports), design.penalties(supports)[..., None]
    predictors = [np.swapaxes(w, 1, 2) @ features for w in (coefficients, nothing)]
    first = likelihood.value(predictors[0]) + _ridge(penalty, coefficients)
    second = likelihood.value(predictors[1])
    better = (first <= second)[:, None, None]
    w, eta = np.where(better, coefficients, nothing), np.where(better, *predictors)
    values = np.fmin(first, second)
    q, t = w.shape[1:]
    found, losses = w.copy(), values.copy()
    left = np.arange(len(w))
    total = float(likelihood.weights.sum())
    for _ in range(_MOST_STEPS):
        gradient = features @ np.swapaxes(likelihood.gradient(eta), 1, 2) + penalty * w
        curvature = likelihood.hessian(features, eta).reshape(-1, q * t, q * t)
        add_penalty(curvature, np.repeat(penalty[..., 0], t, -1), total)
        step = np.linalg.solve(curvature, gradient.reshape(-1, q * t, 1)).reshape(-1, q, t)
        gain = (step * gradient).sum((1, 2))
        direction = np.swapaxes(step, 1, 2) @ features
        length, after = _length(likelihood, penalty, w, step, eta, direction, values)
        w = w - length[:, None, None] * step
        eta = eta - length[:, None, None] * direction
        done = (gain <= _TOLERANCE * np.abs(after)) | (length == 0)
        # Half of the gain is what the quadratic model promised for the step that was just made.
        done |= (length == 1) & (after - gain > enough)
        values = after
        found[left], losses[left] = w, values
        if done.all():
            break
        if done.any():
            some = ~done
            left, w, eta, values = left[some], w[some], eta[some], values[some]
            features, penalty = features[some], penalty[some]
    return found, losses


def add_penalty(curvature: Array, penalty: Array, total: float) -> None:
    """Add the penalty (..., s), and a little more, to the diagonals of second derivatives
    (..., s, s), in place: rounding leaves no matrix singular. It changes steps, not where they
    end."""
    diagonal = np.einsum("...ii->...i", curvature)
    # A constant term has no penalty, and its curvature may underflow.
    diagonal += penalty + _LEAST_SHARE * diagonal + 1e-14 * total


def _ridge(penalty: Array, w: Array) -> Array:
    return 0.5 * (penalty * w * w).sum((1, 2))


def _length(
    likelihood: Likelihood,
    penalty: Array,
    w: Array,
    step: Array,
    eta: Array,
    direction: Array,
    values: Array,
) -> tuple[Array, Array]:
    """How much of each step to make, (b,), and the losses after it: all of it, or halved until the
    loss falls; nothing where no part of it helps."""
    length = np.ones(len(w))
    for _ in range(_MOST_HALVINGS):
        scaled = length[:, None, None]
        after = likelihood.value(eta - scaled * direction) + _ridge(penalty, w - scaled * step)
        worse = ~(after <= values)
        if not worse.any():
            return length, after
        length = np.where(worse, length / 2, length)
    return np.where(worse, 0, length), np.where(worse, values, after)
