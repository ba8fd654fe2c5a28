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
    t x t matrix where that has a number.

    Attributes:
        support: (k,).
        weights: coefficients, (k, t).
        own: the block of the inverse of the second derivatives that belongs to each chosen column,
            inverted, (k, t, t).
        gradient: what the loss falls by, to first order, for every column, (n, t).
        left: second derivatives of every column beside the chosen ones, (n, t, t).
        shift: how much a unit of a chosen column's coefficients moves the gradient,
            (k, n, t, t).
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
        support, k, t = fits.supports[0], fits.supports.shape[1], likelihood.outputs
        features = design.chosen(fits.supports[:1])[0]
        weights = fits.coefficients[0]
        eta = weights.T @ features
        gradient = -design.features @ likelihood.gradient(eta).T
        n, size = len(design.features), len(features) * t
        across, left = likelihood.across(design.features, features, eta)
        whole = np.trace(left, axis1=1, axis2=2)
        left = left + design.penalty[:, None, None] * np.eye(t)
        shift: Array = np.zeros((k, n, t, t))
        own: Array = np.zeros((k, t, t))
        if size:
            inside = likelihood.across(features, features, eta)[0].reshape(size, size)
            penalty = np.repeat(design.penalties(fits.supports[:1])[0], t)
            add_penalty(inside, penalty, float(likelihood.weights.sum()))
            inverse = np.linalg.inv(inside)
            across = across.reshape(n * t, size)
            moved = across @ inverse
            products = moved.reshape(n, t, size) @ np.swapaxes(across.reshape(n, t, size), 1, 2)
            left = left - products
            blocks = inverse.reshape(len(features), t, len(features), t)
            own = np.linalg.inv(blocks[np.arange(k), :, np.arange(k)])
            shift = np.moveaxis(moved.reshape(n, t, -1, t)[:, :, :k], 2, 0) @ own[:, None]
        # Nothing is left to gain with these: what remains of them is rounding.
        spent = np.trace(left, axis1=1, axis2=2) <= _DEPENDENT * whole + t * design.penalty
        gradient[spent], left[spent] = 0, np.eye(t)
        gradient[support] = 0
        return cls(support, weights[:k], own, gradient, left, shift)

    def additions(self) -> Array:
        """What each column would gain, (n,); -inf for those chosen."""
        gains = _form(self.gradient, self.left)
        gains[self.support] = -np.inf
        return gains

    def removals(self) -> Array:
        """What it costs to leave each chosen column out, (k,)."""
        return 0.5 * np.einsum("kt,ktu,ku->k", self.weights, self.own, self.weights)

    def swaps(self) -> Array:
        """What each column in the place of each chosen one would gain, (k, n)."""
        moved = (self.shift @ self.weights[:, None, :, None])[..., 0]
        inverse = np.linalg.inv(self.own)[:, None]
        left = self.left + self.shift @ inverse @ np.swapaxes(self.shift, -1, -2)
        gains = _form(self.gradient + moved, left) - self.removals()[:, None]
        gains[:, self.support] = -np.inf
        return gains


def _form(gradient: Array, curvature: Array) -> Array:
    """Half of g' H^-1 g."""
    if gradient.shape[-1] == 1:
        return 0.5 * np.square(gradient[..., 0]) / curvature[..., 0, 0]
    solved = np.linalg.solve(curvature, gradient[..., None])[..., 0]
    return 0.5 * (solved * gradient).sum(-1)
