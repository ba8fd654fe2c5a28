"""Best-k linear regression and feature selection for scikit-learn (extra ``sklearn``)."""

import ksubset._torch  # noqa: F401
from ksubset.sklearn.path import KPath, k_path, plot_path
from ksubset.sklearn.regressor import KSubsetRegressor
from ksubset.sklearn.selector import KSubsetSelector

__all__ = ["KPath", "KSubsetRegressor", "KSubsetSelector", "k_path", "plot_path"]
