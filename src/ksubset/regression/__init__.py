"""Models on k of n columns: for least squares the loss of a choice, its training and an exact
search; for other likelihoods a search by swaps."""

import ksubset._torch  # noqa: F401
from ksubset.regression.centred import CentredProblem
from ksubset.regression.exchange import Exchange, swap_search
from ksubset.regression.hazards import Cox
from ksubset.regression.likelihoods import Likelihood, Logistic, Multinomial, Poisson
from ksubset.regression.loss import SubsetLoss, make_problem
from ksubset.regression.problem import GramProblem, Problem, RowProblem
from ksubset.regression.rows import Rows
from ksubset.regression.selection import Selection, select
from ksubset.regression.subset import Choice, Standardised, choose, standardise
from ksubset.regression.training import Settings, Trained, train

__all__ = [
    "CentredProblem",
    "Choice",
    "Cox",
    "Exchange",
    "GramProblem",
    "Likelihood",
    "Logistic",
    "Multinomial",
    "Poisson",
    "Problem",
    "RowProblem",
    "Rows",
    "Selection",
    "Settings",
    "Standardised",
    "SubsetLoss",
    "Trained",
    "choose",
    "make_problem",
    "select",
    "standardise",
    "swap_search",
    "train",
]
