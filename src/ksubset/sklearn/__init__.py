"""Best-k linear models and feature selection for scikit-learn (extra ``sklearn``)."""

import ksubset._torch  # noqa: F401
from ksubset.sklearn.classifier import KSubsetClassifier
from ksubset.sklearn.cox import KSubsetCox
from ksubset.sklearn.path import KPath, k_path, plot_path
from ksubset.sklearn.poisson import KSubsetPoissonRegressor
from ksubset.sklearn.regressor import KSubsetRegressor
from ksubset.sklearn.selector import KSubsetSelector

__all__ = [
    "KPath",
    "KSubsetClassifier",
    "KSubsetCox",
    "KSubsetPoissonRegressor",
    "KSubsetRegressor",
    "KSubsetSelector",
    "k_path",
    "plot_path",
]
