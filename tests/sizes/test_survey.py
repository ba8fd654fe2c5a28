"""Surveys: designs with given probabilities, against R's ``sampling`` and enumeration.

R's numbers are those of sampling 2.9-2, which stops at a change of 1e-6 in all probabilities:

    library(sampling)
    pik <- c(0.07, 0.17, 0.41, 0.61, 0.83, 0.91)   # the example of ?UPmaxentropypi2
    pik <- c(0.2, 0.7, 0.8, 0.5, 0.4, 0.4)         # the one of ?varHT
    pik <- c(1, 0, 0.3, 0.6, 0.6, 0.5)
    p <- UPmaxentropypi2(pik)

and, run to 1e-13, for the first of these

    pikt <- UPMEpiktildefrompik(pik, eps = 1e-13); p <- UPMEpik2frompikw(pik, pikt / (1 - pikt))
    s <- c(3, 4, 6); y <- c(9.3, 12.1, 10.4, 7.7, 11.2, 8.8)
    HTestimator(y[s], pik[s]); varHT(y[s], p[s, s], 2)
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import ksubset
from ksubset import KSubset, oracle

# The inclusion probabilities, and those of pairs above the diagonal, row by row.
R = {
    "UPmaxentropypi2": (
        [0.07, 0.17, 0.41, 0.61, 0.83, 0.91],
        [
            *(0.004917090699, 0.0129538894, 0.02147745141, 0.04472560512, 0.05592596473),
            *(0.03238314926, 0.05365089529, 0.1113288359, 0.1377200362),
            *(0.1406860254, 0.2887534545, 0.3452239782),
            *(0.469124095, 0.5350620044),
            0.7460680191,
        ],
    ),
    "varHT": (
        [0.2, 0.7, 0.8, 0.5, 0.4, 0.4],
        [
            *(0.1069843951, 0.1349846009, 0.06297034459, 0.04753033, 0.04753033),
            *(0.5345390815, 0.2998008797, 0.2293378215, 0.2293378215),
            *(0.3640780435, 0.2831991366, 0.2831991366),
            *(0.1365755295, 0.1365755295),
            0.1033571825,
        ],
    ),
    "certain and impossible": (
        [1.0, 0.0, 0.3, 0.6, 0.6, 0.5],
        [
            *(0.0, 0.3, 0.6, 0.6, 0.5),
            *(0.0, 0.0, 0.0, 0.0),
            *(0.1093281679, 0.1093281679, 0.08134366344),
            *(0.2813440954, 0.2093277367),
            0.2093277367,
        ],
    ),
}


def sen_yates_grundy(ratio: Tensor, p: Tensor, pairs: Tensor) -> Tensor:
    """The estimate of the variance, of what was seen only."""
    gaps = (ratio.unsqueeze(0) - ratio.unsqueeze(1)).square()
    return 0.5 * ((p.unsqueeze(0) * p.unsqueeze(1) - pairs) / pairs * gaps).sum()


@pytest.mark.parametrize("example", R)
def test_probabilities_of_pairs_are_those_of_r(example: str) -> None:
    wanted, above = (torch.tensor(x, dtype=torch.float64) for x in R[example])
    design = KSubset.from_marginals(wanted)
    k = round(float(wanted.sum()))
    pairs = ksubset.pairwise_marginals(design.logits, k)
    rows, columns = torch.triu_indices(6, 6, 1)
    torch.testing.assert_close(design.mean, wanted, atol=1e-10, rtol=0)
    torch.testing.assert_close(pairs[rows, columns], above, atol=1e-6, rtol=0)
    support = oracle.support(6, k)
    chances = oracle.log_probabilities(design.logits, k).exp()
    truth = torch.einsum("s,si,sj->ij", chances, support, support)
    torch.testing.assert_close(pairs, truth, atol=1e-10, rtol=0)


def test_estimates_are_those_of_r() -> None:
    p = torch.tensor(R["UPmaxentropypi2"][0], dtype=torch.float64)
    harvest = torch.tensor([9.3, 12.1, 10.4, 7.7, 11.2, 8.8], dtype=torch.float64)
    design = KSubset.from_marginals(p)
    seen = torch.tensor([2, 3, 5])
    pairs = ksubset.pairwise_marginals(design.logits, 3)[seen][:, seen]
    ratio = (harvest / p)[seen]
    assert abs(float(ratio.sum()) - 47.6591341485) < 1e-6
    assert abs(float(sen_yates_grundy(ratio, p[seen], pairs)) - 146.5066240075) < 1e-8


@pytest.mark.parametrize("total", [3.0, 7.3])
def test_pairs_of_a_design_are_those_of_enumeration(total: float) -> None:
    size = torch.rand(12, dtype=torch.float64) + 0.8
    wanted = total * size / size.sum()
    design = KSubset.from_marginals(wanted)
    support = design.enumerate_support()
    chances = design.log_prob(support).exp()
    truth = torch.einsum("s,si,sj->ij", chances, support, support)
    torch.testing.assert_close(truth.diagonal(), wanted, atol=1e-10, rtol=0)
    pairs = ksubset.pairwise_marginals(design.logits, design.k)
    torch.testing.assert_close(pairs, truth, atol=1e-10, rtol=0)


def test_both_estimates_are_unbiased() -> None:
    """Over all samples: the total, and the variance from what each sample sees."""
    size = torch.rand(9, dtype=torch.float64) + 0.2
    harvest = 3 * size + torch.randn(9, dtype=torch.float64)
    design = KSubset.from_marginals(4 * size / size.sum())
    p, pairs = design.mean, ksubset.pairwise_marginals(design.logits, 4)
    support = design.enumerate_support()
    chances = design.log_prob(support).exp()
    estimates = support @ (harvest / p)
    mean = chances @ estimates
    torch.testing.assert_close(mean, harvest.sum())
    seen = [z.nonzero().squeeze(-1) for z in support]
    variances = torch.stack(
        [sen_yates_grundy((harvest / p)[s], p[s], pairs[s][:, s]) for s in seen]
    )
    torch.testing.assert_close(chances @ variances, chances @ (estimates - mean).square())
