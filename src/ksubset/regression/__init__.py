"""Least squares on k of n columns: the loss of a choice, its training and an exact search."""

import ksubset._torch  # noqa: F401
from ksubset.regression.exchange import Exchange, swap_search
from ksubset.regression.loss import SubsetLoss, make_problem
from ksubset.regression.problem import GramProblem, Problem, RowProblem
from ksubset.regression.rows import Rows
from ksubset.regression.subset import Choice, Standardised, choose, standardise
from ksubset.regression.training import Settings, Trained, train

__all__ = [
    "Choice",
    "Exchange",
    "GramProblem",
    "Problem",
    "RowProblem",
    "Rows",
    "Settings",
    "Standardised",
    "SubsetLoss",
    "Trained",
    "choose",
    "make_problem",
    "standardise",
    "swap_search",
    "train",
]
