"""A quadratic model of the loss around a fit: what every change of its support would gain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ksubset.regression.likelihoods import Array, Likelihood
from ksubset.regression.newton import Design, Fits, add_penalty

# A column of which less than this share is left beside the chosen ones is in their span.
_DEPENDENT = 1e-7


@dataclass
class Local:
    r"""The loss to second order around a fit on k of n columns.

    With least squares in place of the loss this is :class:`Exchange`: the same formulas, with a
    t x t matrix where that has a number. Where the loss gives one number for all t outputs, so do
    all matrices here: c is t, or 1.

    Attributes:
        support: (k,).
        weights: coefficients, (k, t).
        own: the block of the inverse of the second derivatives that belongs to each chosen column,
            inverted, (k, c, c).
        gradient: what the loss falls by, to first order, for every column, (n, t).
        left: second derivatives of every column beside the chosen ones, (n, c, c).
        shift: how much a unit of a chosen column's coefficients moves the gradient,
            (k, n, c, c).
    """

    support: Array
    weights: Array
    own: Array
    gradient: Array
    left: Array
    shift: Array

    @classmethod
    def of(cls, likelihood: Likelihood, design: Design, fits: Fits) -> Local:
        """Around the first of the fits."""
        support, k = fits.supports[0], fits.supports.shape[1]
        features = design.chosen(fits.supports[:1])[0]
        weights = fits.coefficients[0]
        eta = weights.T @ features
        gradient = -design.features @ likelihood.gradient(eta).T
        across, left = likelihood.across(design.features, features, eta)
        n, c, q = across.shape[:3]
        whole = np.trace(left, axis1=1, axis2=2)
        left = left + design.penalty[:, None, None] * np.eye(c)
        shift: Array = np.zeros((k, n, c, c))
        own: Array = np.zeros((k, c, c))
        if q:
            size = q * c
            inside = likelihood.across(features, features, eta)[0].reshape(size, size)
            penalty = np.repeat(design.penalties(fits.supports[:1])[0], c)
            add_penalty(inside, penalty, float(likelihood.weights.sum()))
            inverse = np.linalg.inv(inside)
            moved = across.reshape(n * c, size) @ inverse
            products = moved.reshape(n, c, size) @ np.swapaxes(across.reshape(n, c, size), 1, 2)
            left = left - products
            blocks = inverse.reshape(q, c, q, c)
            own = np.linalg.inv(blocks[np.arange(k), :, np.arange(k)])
            shift = np.moveaxis(moved.reshape(n, c, q, c)[:, :, :k], 2, 0) @ own[:, None]
        # Nothing is left to gain with these: what remains of them is rounding.
        spent = np.trace(left, axis1=1, axis2=2) <= _DEPENDENT * whole + c * design.penalty
        gradient[spent], left[spent] = 0, np.eye(c)
        gradient[support] = 0
        return cls(support, weights[:k], own, gradient, left, shift)

    def additions(self) -> Array:
        """What each column would gain, (n,); -inf for those chosen."""
        gains = _form(self.gradient, self.left)
        gains[self.support] = -np.inf
        return gains

    def removals(self) -> Array:
        """What it costs to leave each chosen column out, (k,)."""
        return 0.5 * (_times(self.own, self.weights) * self.weights).sum(-1)

    def swaps(self) -> Array:
        """What each column in the place of each chosen one would gain, (k, n)."""
        moved = _times(self.shift, self.weights[:, None])
        inverse = np.linalg.inv(self.own)[:, None]
        left = self.left + self.shift @ inverse @ np.swapaxes(self.shift, -1, -2)
        gains = _form(self.gradient + moved, left) - self.removals()[:, None]
        gains[:, self.support] = -np.inf
        return gains


def _times(matrix: Array, vector: Array) -> Array:
    """Of (..., c, c) and (..., t)."""
    if matrix.shape[-1] == 1:
        return matrix[..., 0] * vector
    return (matrix @ vector[..., None])[..., 0]


def _form(gradient: Array, curvature: Array) -> Array:
    """Half of g' H^-1 g."""
    if curvature.shape[-1] == 1:
        return 0.5 * np.square(gradient).sum(-1) / curvature[..., 0, 0]
    solved = np.linalg.solve(curvature, gradient[..., None])[..., 0]
    return 0.5 * (solved * gradient).sum(-1)
