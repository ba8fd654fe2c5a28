"""Least squares on k of n columns: the loss of a choice, its training and an exact search."""

from ksubset.regression.loss import SubsetLoss, make_problem
from ksubset.regression.problem import GramProblem, Problem, RowProblem

__all__ = ["GramProblem", "Problem", "RowProblem", "SubsetLoss", "make_problem"]
