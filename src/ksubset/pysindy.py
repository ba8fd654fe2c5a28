"""An optimiser for PySINDy: exactly k terms in every equation (extra ``sindy``)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from pysindy.optimizers import BaseOptimizer
from sklearn.utils import check_random_state

from ksubset.regression import Choice, choose, standardise
from ksubset.sklearn.fitting import Array, check_k, check_settings, refit

__all__ = ["KSubsetOptimizer"]


class KSubsetOptimizer(BaseOptimizer):
    r"""The best k terms of the library for every target, by :mod:`ksubset.regression`:
    :math:`\min_w \|\dot x - \Theta w\|^2 + \alpha \|w\|^2` with k of the coefficients other than
    zero, :math:`\Theta` (samples, terms) the library and :math:`\dot x` (samples,) one target.

    Terms are standardised for the search whatever ``normalize_columns`` says, and never centred:
    an intercept is a term of the library.

    Args:
        k: how many terms each equation has, or one number for every target.
        alpha: a ridge penalty, on coefficients of the columns as PySINDy hands them over, which
            ``normalize_columns`` changes. With ``unbias``, PySINDy fits the chosen terms anew
            without it: then it only takes part in the choice.
        search: take the terms with the smallest loss that the search finds; False takes those with
            the largest marginals.
        gamma: the prior variance of a coefficient on a column of norm 1, in units of the noise's,
            for the training; None estimates it with the noise level.
        n_restarts: distributions to train, whose most likely subsets give the search more starts;
            it rarely needs them, and takes many times as long with them.
        max_iter: steps of training.
        random_state: of the samples.
        normalize_columns: PySINDy's own: it hands over columns of norm 1.
        initial_guess: PySINDy's own, (targets, terms); it is checked and not used.
        copy_X: PySINDy's own: it works on a copy of the library.
        unbias: PySINDy's own: it fits the chosen terms anew, without a penalty.

    Attributes:
        coef_: (targets, terms), k of every row other than zero.
        marginals_: the probability of each term to be one of the k, (targets, terms).

    Examples:
        >>> import numpy as np, pysindy
        >>> from ksubset.pysindy import KSubsetOptimizer
        >>> t = torch.linspace(0, 10, 1000).double().numpy()
        >>> x = np.stack([np.cos(t), -np.sin(t)], 1)  # x'' = -x
        >>> library = pysindy.PolynomialLibrary(degree=2)
        >>> optimizer = KSubsetOptimizer(k=1, random_state=0)
        >>> model = pysindy.SINDy(optimizer=optimizer, feature_library=library)
        >>> model = model.fit(x, t=t)
        >>> model.coefficients().round(2).tolist()
        [[0.0, 0.0, 1.0, 0.0, 0.0, 0.0], [0.0, -1.0, 0.0, 0.0, 0.0, 0.0]]
    """

    def __init__(
        self,
        k: int | Sequence[int] | None = None,
        alpha: float = 0.0,
        search: bool = True,
        gamma: float | None = None,
        n_restarts: int = 0,
        max_iter: int = 60,
        random_state: Any = None,
        normalize_columns: bool = False,
        initial_guess: Array | None = None,
        copy_X: bool = True,  # noqa: N803
        unbias: bool = True,
    ) -> None:
        super().__init__(
            max_iter=max_iter,
            normalize_columns=normalize_columns,
            initial_guess=initial_guess,
            copy_X=copy_X,
            unbias=unbias,
        )
        self.k = k
        self.alpha = alpha
        self.search = search
        self.gamma = gamma
        self.n_restarts = n_restarts
        self.random_state = random_state

    def _reduce(self, x: Array, y: Array) -> None:
        """A choice and its coefficients for every target; one Gram matrix for all of them."""
        counts = self._counts(y.shape[1], x.shape[1])
        settings = check_settings(
            alpha=self.alpha,
            gamma=self.gamma,
            n_restarts=self.n_restarts,
            max_iter=self.max_iter,
        )
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        data = standardise(
            torch.from_numpy(np.array(x, dtype=np.float64)),
            torch.from_numpy(np.array(y, dtype=np.float64)),
            centre=False,
        )
        coefficients = np.zeros((y.shape[1], x.shape[1]))
        choices: list[Choice] = []
        for target, k in enumerate(counts):
            choice = choose(
                dataclasses.replace(data, problem=data.problem.target(target)),
                k,
                ridge=self.alpha,
                search=self.search,
                settings=settings,
                generator=torch.Generator().manual_seed(seed),
            )
            support = choice.support.numpy()
            coefficients[target, support] = refit(
                x, y[:, target], None, support, self.alpha, False
            )[0][0]
            choices.append(choice)
        self.coef_ = coefficients
        self.history_.append(self.coef_)
        self.marginals_ = np.stack([choice.marginals.numpy() for choice in choices])

    def _counts(self, targets: int, terms: int) -> list[int]:
        if self.k is None or np.ndim(self.k) == 0:
            return [check_k(self.k, terms)] * targets
        counts = list(self.k)  # type: ignore[arg-type]
        if len(counts) != targets:
            raise ValueError(
                f"k must be one number or one for each of the {targets} targets, got {counts}"
            )
        return [check_k(k, terms) for k in counts]
