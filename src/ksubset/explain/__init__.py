"""Learn which k features, words or tokens of an input decide an outcome."""

import ksubset._torch  # noqa: F401
from ksubset.explain.explainer import Explanation, KSubsetExplainer, MaskedInput
from ksubset.explain.fitting import FitHistory, fit, from_numpy
from ksubset.explain.page import write_page
from ksubset.explain.vectors import word_vectors

__all__ = [
    "Explanation",
    "FitHistory",
    "KSubsetExplainer",
    "MaskedInput",
    "fit",
    "from_numpy",
    "word_vectors",
    "write_page",
]
