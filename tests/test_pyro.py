"""KSubset as a site of Pyro's models."""

from __future__ import annotations

import pytest
import torch

pyro = pytest.importorskip("pyro")
kp = pytest.importorskip("ksubset.pyro")

LOGITS = torch.tensor([0.0, 1.0, 0.0, -1.0])


def model(data: torch.Tensor) -> torch.Tensor:
    z = pyro.sample("z", kp.KSubset(2, logits=LOGITS))
    pyro.sample("x", pyro.distributions.Normal(z @ torch.arange(4.0), 1.0), obs=data)
    return z


def exact(data: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """The ELBO of a k-subset guide, by enumeration."""
    prior, guide = kp.KSubset(2, logits=LOGITS), kp.KSubset(2, logits=logits)
    z = prior.enumerate_support()
    likelihood = pyro.distributions.Normal(z @ torch.arange(4.0), 1.0).log_prob(data)
    q = guide.log_prob(z)
    return (q.exp() * (prior.log_prob(z) + likelihood - q)).sum()


@pytest.mark.parametrize("loss", ["Trace_ELBO", "TraceGraph_ELBO"])
def test_the_gradient_of_the_elbo(loss: str) -> None:
    """By the score function, against enumeration."""
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    data, start = torch.tensor(3.0), torch.tensor([0.5, 0.0, -0.5, 0.0])

    def guide(_: torch.Tensor) -> None:
        logits = pyro.param("logits", start)
        with pyro.poutine.scale(scale=1.0):
            pyro.sample("z", kp.KSubset(2, logits=logits))

    elbo = getattr(pyro.infer, loss)(
        num_particles=4000, vectorize_particles=True, max_plate_nesting=0
    )
    value = torch.tensor(elbo.loss_and_grads(model, guide, data))
    found = -pyro.param("logits").grad
    logits = start.clone().requires_grad_()
    truth = exact(data, logits)
    (gradient,) = torch.autograd.grad(truth, logits)
    assert abs(float(-value - truth.detach())) < 0.15
    assert (found - gradient).abs().max() < 0.15


def test_plates_and_shapes() -> None:
    def plates() -> None:
        with pyro.plate("rows", 3):
            pyro.sample("z", kp.KSubset(2, logits=torch.zeros(5)))
        pyro.sample("pair", kp.SimpleKSubset(1, logits=torch.zeros(2, 4)).to_event(1))

    trace = pyro.poutine.trace(plates).get_trace()
    trace.compute_log_prob()
    assert trace.nodes["z"]["value"].shape == (3, 5)
    assert trace.nodes["z"]["log_prob"].shape == (3,)
    assert trace.nodes["pair"]["log_prob"].shape == ()
