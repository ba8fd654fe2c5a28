"""Learning a distribution over subsets of columns.

Minimised over logits theta is the variational free energy of the choice,
E l(z) / (2 sigma^2) - H(theta), with l the ridge loss and H the exact entropy.
SIMPLE's gradient of it is Cov (g / (2 sigma^2) + theta), g the loss's gradient at an exact sample;
Cov is also the Fisher information, so the natural gradient is g / (2 sigma^2) + theta, and a step
of it moves theta towards -g / (2 sigma^2). Noise level and ridge follow the samples
(docs/sparse-regression.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ksubset import functional
from ksubset.regression.exchange import Exchange
from ksubset.regression.problem import GramProblem, Problem, RowProblem

# Logits further apart than this say the same, and need digits.
_WIDEST = 1e4
# Columns of which the Gram matrix is formed at a time where there are too many for all.
_SCREENED = 1000


@dataclass(frozen=True)
class Settings:
    """Of the training: what :func:`train` and :func:`choose` take.

    Attributes:
        steps: of the natural gradient.
        restarts: distributions trained side by side.
        gamma: the prior variance of a coefficient on a column of norm 1, in units of the noise's;
            None follows the samples.
        noise: sigma^2; None follows the samples.
        gradient: "difference", the loss with a column less the loss without it; "derivative",
            that of the ridge loss in z.

    Examples:
        >>> from ksubset.regression import Settings
        >>> Settings(steps=20)
        Settings(steps=20, restarts=4, gamma=None, noise=None, gradient='difference')
    """

    steps: int = 60
    restarts: int = 4
    gamma: float | None = None
    noise: float | None = None
    gradient: str = "difference"

    def __post_init__(self) -> None:
        if self.gradient not in ("difference", "derivative"):
            raise ValueError(
                f"gradient must be 'difference' or 'derivative', got {self.gradient!r}"
            )
        if self.steps < 1 or self.restarts < 1:
            raise ValueError(
                f"steps and restarts must be at least 1, got {self.steps} and {self.restarts}"
            )


@dataclass
class Trained:
    """Laws of subsets.

    Attributes:
        logits: (restarts, n); -inf for columns that were never tried.
        k: how many columns a subset has.
        history: of every step the sampled loss relative to y'y, sigma^2, gamma and the entropy,
            averaged over restarts: "loss", "noise", "gamma" and "entropy".

    Examples:
        >>> from ksubset.regression import Trained
        >>> laws = Trained(torch.tensor([[3.0, 1.0, 0.0], [3.0, 0.0, 2.0]]), k=2)
        >>> laws.marginals().sum()
        tensor(2.)
        >>> laws.supports()  # of both together, then of each
        tensor([[0, 2],
                [0, 1],
                [0, 2]])
    """

    logits: Tensor
    k: int
    history: list[dict[str, float]] = field(default_factory=list)

    def marginals(self) -> Tensor:
        """How likely each column is chosen, averaged over restarts, (n,)."""
        return functional.marginals(self.logits, self.k).mean(0)

    def supports(self) -> Tensor:
        """The most likely columns: of all restarts together, then of each, (restarts + 1, k)."""
        first = self.marginals().topk(self.k).indices.unsqueeze(0)
        return torch.cat([first, self.logits.topk(self.k).indices])


def train(
    problem: Problem,
    k: int,
    rows: float,
    penalty: Tensor,
    settings: Settings,
    generator: torch.Generator,
) -> Trained:
    r"""Laws of k-subsets of the columns, which must be of norm 1 or 0.

    Minimised is :math:`\mathrm{E}\, \ell(z) / (2 \sigma^2) - H(\theta)`, with the ridge loss of a
    choice and the entropy of the distribution, by natural gradients at exact samples:
    :math:`\theta \leftarrow (1 - \rho) \theta - \rho g / (2 \sigma^2)`. Noise level and prior
    variance follow the samples (docs/sparse-regression.md).

    Args:
        problem: on n columns.
        k: how many columns a subset has.
        rows: the number of observations behind the problem.
        penalty: the user's ridge penalty of every column, (n,).
        settings: steps, restarts and what is not to follow the samples.
        generator: the source of randomness, on the CPU.

    Returns:
        The distributions, one for every restart.

    Examples:
        >>> from ksubset.regression import Settings, standardise, train
        >>> x = torch.randn(100, 20).double()
        >>> data = standardise(x, 2 * x[:, 3] - x[:, 7])
        >>> penalty = torch.full((20,), 1e-9).double()
        >>> settings, generator = Settings(steps=20), torch.Generator().manual_seed(0)
        >>> laws = train(data.problem, 2, data.rows, penalty, settings, generator)
        >>> laws.logits.shape, len(laws.history)
        (torch.Size([4, 20]), 20)
        >>> laws.supports()[0].sort().values
        tensor([3, 7])
    """
    if isinstance(problem, RowProblem):
        if problem.n > _SCREENED:
            return _train_screened(problem, k, rows, penalty, settings, generator)
        # Every step needs columns of it.
        every = torch.arange(problem.n, device=penalty.device)
        problem = GramProblem(problem.block(every.unsqueeze(0))[0], problem.moments, problem.totals)
    trained = Trained(_first_logits(problem, k, rows, penalty, settings, generator), k)
    _descend(trained, problem, rows, penalty, settings, generator)
    return trained


def _first_logits(
    problem: Problem,
    k: int,
    rows: float,
    penalty: Tensor,
    settings: Settings,
    generator: torch.Generator,
) -> Tensor:
    """From what each column explains alone, tempered: restarts differ by noise."""
    alone = problem.moments.square().sum(-1) / (problem.squares + penalty).clamp_min(1e-30)
    logits = alone * rows / (2 * problem.total)
    logits = logits * (4 / (logits.max() - logits.min()).clamp_min(4))
    noise = torch.randn(settings.restarts, problem.n, generator=generator, dtype=logits.dtype)
    return logits + noise.to(logits.device)


def _descend(
    trained: Trained,
    problem: Problem,
    rows: float,
    penalty: Tensor,
    settings: Settings,
    generator: torch.Generator,
) -> None:
    k, logits = trained.k, trained.logits
    freedom = max(rows - k, 1.0)
    smallest = torch.finfo(logits.dtype).eps * problem.total
    noise, gamma = problem.total / freedom, problem.total.new_tensor(rows / k)
    for step in range(settings.steps):
        z = functional.sample(logits, k, generator=generator)
        support = z.nonzero()[:, 1].reshape(-1, k)
        if settings.noise is not None:
            noise = problem.total.new_tensor(settings.noise)
        if settings.gamma is not None:
            gamma = problem.total.new_tensor(settings.gamma)
        state = Exchange.of(problem, support, penalty + 1 / gamma)
        if settings.gradient == "difference":
            gradient = state.differences(support)
        else:
            own = (state.weights / gamma).square().sum(-1)
            gradient = -gamma * state.common.square().sum(-1).scatter(-1, support, own)
        span = (gradient.amax(-1) - gradient.amin(-1)).amax()
        scale = torch.maximum(2 * noise, span / _WIDEST).clamp_min(smallest)
        rate = 1 / (1 + 0.3 * step)
        logits = (1 - rate) * logits - rate * gradient / scale
        # The distributions settle: so does what is known about the noise.
        loss = state.loss.mean().clamp(min=smallest)
        rate = max(rate, 0.2)
        noise = (1 - rate) * noise + rate * loss / freedom
        signal = (problem.total - loss).clamp_min(1e-3 * problem.total)
        gamma = (1 - rate) * gamma + rate * (signal / (k * noise)).clamp(1e-3, 1e6)
        trained.history.append(
            {
                "loss": float(loss / problem.total),
                "noise": float(noise),
                "gamma": float(gamma),
                "entropy": float(functional.entropy(logits, k).mean()),
            }
        )
    trained.logits = logits


def _train_screened(
    problem: RowProblem,
    k: int,
    rows: float,
    penalty: Tensor,
    settings: Settings,
    generator: torch.Generator,
    rounds: int = 3,
) -> Trained:
    """By the Gram matrix of the most promising columns: first by what each explains alone, then by
    what each would add to a sample of the distributions learned so far, among all columns."""
    own = (problem.squares + penalty).clamp_min(1e-30)
    score = problem.moments.square().sum(-1) / own
    size = max(_SCREENED, 4 * k)
    trained = Trained(score.new_zeros(settings.restarts, 0), k)
    for turn in range(rounds):
        kept = score.topk(min(size, problem.n)).indices
        gram = problem.block(kept.unsqueeze(0))[0]
        part = GramProblem(gram, problem.moments[kept], problem.totals)
        trained.logits = _first_logits(part, k, rows, penalty[kept], settings, generator)
        _descend(trained, part, rows, penalty[kept], settings, generator)
        if turn < rounds - 1:
            support = kept[functional.sample_indices(trained.logits, k, generator=generator)]
            best = torch.zeros_like(score)
            gamma = trained.history[-1]["gamma"]
            for row in support.split(1):
                state = Exchange.of(problem, row, penalty + 1 / gamma)
                best = torch.maximum(best, -state.differences(row)[0])
            likely = trained.marginals().topk(min(4 * k, len(kept))).indices
            score = best.index_fill(0, kept[likely], torch.inf)
    full = score.new_full((settings.restarts, problem.n), -torch.inf)
    full[:, kept] = trained.logits
    trained.logits = full
    return trained
