r"""Losses of a linear predictor: what the search for a support needs of each.

A loss knows the outcomes of m observations. It is a function of the predictor
:math:`\eta` of shape (..., t, m), with t numbers for every observation, and it is convex in it.
Derivatives are with respect to the predictor. Everything is NumPy, in float64.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# With more outputs swaps are ordered by one curvature for all of them.
_MOST_EXACT = 3


class Likelihood(Protocol):
    """A loss, convex in the predictor.

    Attributes:
        outputs: t, how many numbers the predictor has for an observation.
        weights: of the observations, (m,), in the order of ``order``.
        order: the observations, as the loss wants them; a permutation (m,).
        constant: whether a constant term changes the loss.
        effective: how much data there is, for information criteria: the sum of the weights, or of
            those of the events.

    Examples:
        >>> import numpy as np
        >>> from ksubset.regression import Likelihood, Logistic
        >>> loss: Likelihood = Logistic(np.array([0.0, 1.0, 1.0]), np.ones(3))
        >>> loss.gradient(np.zeros((1, 3)))  # chances less outcomes
        array([[ 0.5, -0.5, -0.5]])
    """

    outputs: int
    weights: Array
    order: Array
    constant: bool
    effective: float

    def value(self, predictor: Array) -> Array:
        """Losses (...) of predictors (..., t, m)."""

    def gradient(self, predictor: Array) -> Array:
        """Derivatives in the predictor, (..., t, m)."""

    def hessian(self, features: Array, predictor: Array) -> Array:
        """Second derivatives in the coefficients of features.

        Args:
            features: (..., q, m).
            predictor: (..., t, m).

        Returns:
            (..., q, t, q, t).
        """

    def across(self, features: Array, chosen: Array, predictor: Array) -> tuple[Array, Array]:
        """Second derivatives of many features with a few and with themselves. An approximation
        will do: they only order what is tried.

        Args:
            features: (n, m).
            chosen: (q, m).
            predictor: (t, m).

        Returns:
            (n, t, q, t) and (n, t, t); or 1 in place of t, for a multiple of the identity.
        """

    def null(self) -> Array:
        """The constant term (t,) of the best model without features."""


class _Pointwise:
    """A sum over observations: the second derivatives are one t x t matrix for each."""

    constant = True
    outputs = 1

    def __init__(self, weights: Array) -> None:
        self.weights = weights
        self.order = np.arange(len(weights))
        self.effective = float(weights.sum())

    def curvature(self, predictor: Array) -> Array:
        """Second derivatives (..., t, t, m)."""
        raise NotImplementedError

    def hessian(self, features: Array, predictor: Array) -> Array:
        """Second derivatives (..., q, t, q, t) in the coefficients of features (..., q, m)."""
        return _products(features, features, self.curvature(predictor))

    def across(self, features: Array, chosen: Array, predictor: Array) -> tuple[Array, Array]:
        """Of features (n, m) with those chosen, (n, t, q, t), and with themselves, (n, t, t)."""
        curvature = self.curvature(predictor)
        if self.outputs > _MOST_EXACT:
            # One number for every observation in place of a matrix: the mean of its eigenvalues.
            curvature = np.trace(curvature)[None, None] / self.outputs
        t = len(curvature)
        squares = (features * features) @ curvature.reshape(t * t, -1).T
        return _products(features, chosen, curvature), squares.reshape(-1, t, t)


def _products(left: Array, right: Array, curvature: Array) -> Array:
    """Between features (..., p, m) and (..., q, m), (..., p, t, q, t)."""
    t, p, q = curvature.shape[-2], left.shape[-2], right.shape[-2]
    result = np.empty((*left.shape[:-2], p, t, q, t))
    for a in range(t):
        for b in range(a + 1):
            scaled = right * curvature[..., a, b, None, :]
            result[..., a, :, b] = left @ np.swapaxes(scaled, -1, -2)
            result[..., b, :, a] = result[..., a, :, b]
    return result


class Logistic(_Pointwise):
    r"""Two classes: :math:`\sum_i v_i (\log(1 + e^{\eta_i}) - y_i \eta_i)`.

    Args:
        y: of zeros and ones, (m,).
        weights: v, (m,).

    Examples:
        >>> import numpy as np
        >>> from ksubset.regression import Logistic
        >>> loss = Logistic(np.array([0.0, 1.0]), np.ones(2))
        >>> float(loss.value(np.zeros((1, 2))).round(4))  # 2 log 2
        1.3863
    """

    def __init__(self, y: Array, weights: Array) -> None:
        super().__init__(weights)
        self.y = y

    def value(self, predictor: Array) -> Array:
        """Losses (...) of predictors (..., 1, m)."""
        # log(1 + e^s) with s > 0 where the class is the wrong one: no cancellation where it fits.
        wrong = (1 - 2 * self.y) * predictor[..., 0, :]
        return np.logaddexp(0, wrong) @ self.weights

    def gradient(self, predictor: Array) -> Array:
        """Derivatives (..., 1, m)."""
        sign = 1 - 2 * self.y
        return self.weights * sign * _logistic(sign * predictor)

    def curvature(self, predictor: Array) -> Array:
        """Second derivatives (..., 1, 1, m)."""
        chance = _logistic(-np.abs(predictor))
        return (self.weights * chance * (1 - chance))[..., None, :]

    def null(self) -> Array:
        """The log odds of the classes."""
        share = self.weights @ self.y / self.weights.sum()
        return np.array([np.log(share) - np.log1p(-share)])


class Multinomial(_Pointwise):
    r"""Three classes or more: :math:`\sum_i v_i (\log \sum_c e^{s_{ic}} - s_{i y_i})`.

    Only differences of the scores s count, so that they are taken to sum to zero: the predictor has
    their coordinates in an orthonormal basis of that space, one less than there are classes. A
    ridge penalty on coordinates is one on scores.

    Args:
        y: of classes 0 ... c - 1, (m,).
        weights: v, (m,).
        classes: c.

    Examples:
        >>> import numpy as np
        >>> from ksubset.regression import Multinomial
        >>> loss = Multinomial(np.array([0, 1, 2]), np.ones(3), 3)
        >>> loss.outputs, float(loss.value(np.zeros((2, 3))).round(4))  # 3 log 3
        (2, 3.2958)
    """

    def __init__(self, y: Array, weights: Array, classes: int) -> None:
        super().__init__(weights)
        self.y = y
        self.outputs = classes - 1
        # Column j weighs the first j + 1 classes against the one after them.
        size = np.arange(1, classes)
        basis = np.triu(np.ones((classes, classes - 1)))
        basis[size, size - 1] = -size
        self.basis = basis / np.sqrt(size * (size + 1))

    def scores(self, predictor: Array) -> Array:
        """Of all classes, (..., c, m)."""
        return self.basis @ predictor

    def value(self, predictor: Array) -> Array:
        """Losses (...) of predictors (..., c - 1, m)."""
        scores = self.scores(predictor)
        scores = scores - scores[..., self.y, np.arange(len(self.y))][..., None, :]
        top = scores.max(-2, keepdims=True)
        # The right class, whose score is 0 now, is added by log1p: a good fit is not rounded away.
        right = np.exp(-top[..., 0, :])
        scores[..., self.y, np.arange(len(self.y))] = -np.inf
        wrong = np.exp(scores - top).sum(-2)
        losses = top[..., 0, :] + np.log1p(wrong + (right - 1))
        return losses @ self.weights

    def chances(self, predictor: Array) -> Array:
        """Probabilities of all classes, (..., c, m)."""
        scores = self.scores(predictor)
        scores = np.exp(scores - scores.max(-2, keepdims=True))
        return scores / scores.sum(-2, keepdims=True)

    def gradient(self, predictor: Array) -> Array:
        """Derivatives (..., c - 1, m)."""
        chances = self.chances(predictor)
        chances[..., self.y, np.arange(len(self.y))] -= 1
        return self.basis.T @ (chances * self.weights)

    def curvature(self, predictor: Array) -> Array:
        """Second derivatives (..., c - 1, c - 1, m)."""
        chances = self.chances(predictor)
        mean = self.basis.T @ chances
        pairs = np.einsum("ca,cb->abc", self.basis, self.basis)
        square = np.tensordot(pairs, np.moveaxis(chances, -2, 0), 1)
        square = np.moveaxis(square, (0, 1), (-3, -2))
        return self.weights * (square - mean[..., :, None, :] * mean[..., None, :, :])

    def null(self) -> Array:
        """The logarithms of the classes' shares."""
        counts = np.bincount(self.y, self.weights, minlength=self.outputs + 1)
        return self.basis.T @ np.log(counts)


class Poisson(_Pointwise):
    r"""Counts: half the deviance,
    :math:`\sum_i v_i (e^{\eta_i} - y_i - y_i (\eta_i - \log y_i))`.

    Args:
        y: at least zero, one of them positive, (m,).
        weights: v, (m,).

    Examples:
        >>> import numpy as np
        >>> from ksubset.regression import Poisson
        >>> loss = Poisson(np.array([0.0, 1.0, 2.0]), np.ones(3))
        >>> float(loss.value(np.zeros((1, 3))).round(4))  # 1 + 0 + 2 log 2 - 1
        1.3863
    """

    def __init__(self, y: Array, weights: Array) -> None:
        super().__init__(weights)
        self.y = y
        self.best = np.where(y > 0, y * np.log(np.where(y > 0, y, 1)) - y, 0)

    def value(self, predictor: Array) -> Array:
        """Losses (...) of predictors (..., 1, m)."""
        eta = predictor[..., 0, :]
        with np.errstate(over="ignore"):  # a step too long: its loss is infinite
            return (np.exp(eta) - self.y * eta + self.best) @ self.weights

    def gradient(self, predictor: Array) -> Array:
        """Derivatives (..., 1, m)."""
        return self.weights * (np.exp(predictor) - self.y)

    def curvature(self, predictor: Array) -> Array:
        """Second derivatives (..., 1, 1, m)."""
        return (self.weights * np.exp(predictor))[..., None, :]

    def null(self) -> Array:
        """The logarithm of the mean."""
        return np.array([np.log(self.weights @ self.y / self.weights.sum())])


def _logistic(score: Array) -> Array:
    """1 / (1 + e^-s) without overflow."""
    small = np.exp(-np.abs(score))
    return np.where(score >= 0, 1, small) / (1 + small)
