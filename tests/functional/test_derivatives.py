"""Derivatives in both modes, in every nesting, eager and compiled."""

from __future__ import annotations

import copy
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.utils.checkpoint
from problems import INF, METHOD_NAMES
from torch import Tensor, distributed
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

import ksubset
from ksubset import oracle

K = 2
ROW = torch.tensor([0.3, -1.2, 0.8, 2.0, -0.5, 0.1], dtype=torch.float64)
SIZES = torch.tensor([2, 4])


def rows() -> Tensor:
    return torch.randn(2, 6, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("method", METHOD_NAMES)
class TestNumericalDerivatives:
    """Against finite differences: first and second derivatives in reverse and forward mode."""

    def check(self, function: Callable[..., Tensor], *inputs: Tensor, second: bool = True) -> None:
        assert gradcheck(function, inputs, check_forward_ad=True, check_batched_grad=True)
        if second:
            assert gradgradcheck(function, inputs, check_fwd_over_rev=True)

    def test_log_partition(self, method: str) -> None:
        self.check(lambda x: ksubset.log_partition(x, SIZES, method=method), rows())

    def test_log_prob_exactly_k(self, method: str) -> None:
        self.check(lambda x: ksubset.log_prob_exactly_k(x, SIZES, method=method), rows())

    def test_marginals(self, method: str) -> None:
        self.check(lambda x: ksubset.marginals(x, SIZES, method=method), rows())

    def test_covariance_product(self, method: str) -> None:
        def product(x: Tensor, v: Tensor) -> Tensor:
            return ksubset.covariance_product(x, SIZES, v, method=method)

        self.check(product, rows(), rows(), second=False)

    def test_pairwise_marginals(self, method: str) -> None:
        self.check(
            lambda x: ksubset.pairwise_marginals(x, SIZES, method=method), rows(), second=False
        )

    def test_entropy(self, method: str) -> None:
        self.check(lambda x: ksubset.entropy(x, SIZES, method=method), rows())

    def test_kl_divergence(self, method: str) -> None:
        def divergence(x: Tensor, y: Tensor) -> Tensor:
            return ksubset.kl_divergence(x, y, SIZES, method=method)

        self.check(divergence, rows(), rows())

    def test_kl_to_uniform(self, method: str) -> None:
        self.check(lambda x: ksubset.kl_to_uniform(x, SIZES, method=method), rows())

    def test_log_prob(self, method: str) -> None:
        z = ksubset.sample(torch.zeros(2, 6), SIZES)
        self.check(lambda x: ksubset.log_prob(x, SIZES, z, method=method), rows())

    def test_masked_and_forced_items_have_no_gradient(self, method: str) -> None:
        x = rows()
        with torch.no_grad():
            x[0, 1], x[0, 3], x[1, 0] = -INF, INF, -INF
        fixed = ~x.isfinite()
        z = ksubset.sample(x.detach(), SIZES)
        other = torch.randn_like(x)
        for loss in (
            ksubset.marginals(x, SIZES, method=method).square().sum(),
            ksubset.entropy(x, SIZES, method=method).sum(),
            ksubset.log_prob(x, SIZES, z, method=method).sum(),
            ksubset.kl_divergence(x, other, SIZES, method=method).sum(),
            ksubset.log_prob_exactly_k(x, SIZES, method=method).sum(),
            (ksubset.simple(x, SIZES, method=method) * other).sum(),
        ):
            (gradient,) = torch.autograd.grad(loss, x)
            assert gradient.isfinite().all()
            assert gradient[~fixed].abs().sum() > 0
            assert (gradient[fixed] == 0).all()


def test_rows_without_a_choice_have_no_gradient() -> None:
    x = torch.tensor([0.3, -1.0, 2.0], requires_grad=True)
    y = torch.zeros(3, requires_grad=True)
    mask = torch.tensor([True, True, False])
    pair = torch.tensor([1.0, 1.0, 0.0])
    for loss in (
        ksubset.log_prob(x, 3, torch.ones(3)) + 0 * y.sum(),
        ksubset.log_prob(x, 2, pair, mask=mask) + 0 * y.sum(),
        ksubset.kl_divergence(x, y, 3),
        ksubset.entropy(x, 3) + 0 * y.sum(),
    ):
        for gradient in torch.autograd.grad(loss, (x, y)):
            assert not gradient.any()
    (gradient,) = torch.autograd.grad(ksubset.log_partition(x, 3), x)
    assert gradient.tolist() == [1.0, 1.0, 1.0]


def test_overflowing_logits_have_values() -> None:
    """Users forbid with the most negative number there is."""
    least = torch.finfo(torch.float32).min
    row = torch.tensor([0.0, least, least, least])
    value = ksubset.log_prob(row, 2, torch.tensor([1.0, 1.0, 0.0, 0.0]))
    torch.testing.assert_close(value, -torch.tensor(3.0).log())
    assert not ksubset.kl_divergence(torch.arange(4.0), row, 3).isnan()
    assert not ksubset.log_prob_exactly_k(torch.tensor([1.7e38, 1.7e38, 1.7e38, 0.0]), 3).isnan()


def test_a_call_in_inference_mode_leaves_no_trace() -> None:
    x = torch.randn(3, 17, requires_grad=True)
    with torch.inference_mode():
        ksubset.simple(x, 4)
    ksubset.simple(x, 4).sum().backward()
    with torch._subclasses.FakeTensorMode() as mode:
        fake = ksubset.marginals(mode.from_tensor(torch.randn(5, 19)), 4)
    assert fake.shape == (5, 19)
    assert ksubset.marginals(torch.randn(5, 19), 4).sum(-1).allclose(torch.tensor(4.0))


def test_vmap_over_an_empty_axis() -> None:
    assert vmap(marginals)(torch.zeros(0, 6)).shape == (0, 6)
    assert vmap(lambda x: ksubset.KSubset(2, logits=x).entropy())(torch.zeros(4, 6)).shape == (4,)


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_simple_has_the_gradient_of_the_marginals(method: str) -> None:
    x = rows()
    weights = torch.randn(3, 2, 6, dtype=torch.float64)
    z = ksubset.simple(x, SIZES, (3,), method=method)
    assert set(z.unique().tolist()) == {0.0, 1.0}
    (gradient,) = torch.autograd.grad((z * weights).sum(), x)
    truth = torch.stack(
        [oracle.covariance(x[i], int(SIZES[i])) @ weights.sum(0)[i] for i in range(2)]
    )
    torch.testing.assert_close(gradient, truth)
    assert not ksubset.sample(x, SIZES).requires_grad


def marginals(x: Tensor) -> Tensor:
    return ksubset.marginals(x, K)


def entropy(x: Tensor) -> Tensor:
    return ksubset.entropy(x, K)


def log_partition(x: Tensor) -> Tensor:
    return ksubset.log_partition(x, K)


COVARIANCE = oracle.covariance(ROW, K)
THIRD = oracle.third_cumulant(ROW, K)
MU = oracle.marginals(ROW, K)


def dual(x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(marginals(forward_ad.make_dual(x, x))).tangent


TRANSFORMS: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "grad": (lambda x: grad(entropy)(x), -COVARIANCE @ ROW),
    "vjp": (lambda x: vjp(marginals, x)[1](x)[0], COVARIANCE @ ROW),
    "jvp": (lambda x: jvp(marginals, (x,), (x,))[1], COVARIANCE @ ROW),
    "jacrev": (lambda x: jacrev(marginals)(x), COVARIANCE),
    "jacfwd": (lambda x: jacfwd(marginals)(x), COVARIANCE),
    "hessian": (lambda x: hessian(log_partition)(x), COVARIANCE),
    "jacrev of jacrev": (lambda x: jacrev(jacrev(log_partition))(x), COVARIANCE),
    "jacfwd of jacfwd": (lambda x: jacfwd(jacfwd(log_partition))(x), COVARIANCE),
    "grad of grad": (lambda x: grad(lambda y: grad(log_partition)(y) @ x)(x), COVARIANCE @ ROW),
    "hessian of marginals": (lambda x: hessian(marginals)(x), THIRD),
    "jacfwd of jacfwd of marginals": (lambda x: jacfwd(jacfwd(marginals))(x), THIRD),
    "jacrev of hessian": (lambda x: jacrev(hessian(log_partition))(x), THIRD),
    "jacfwd of hessian": (lambda x: jacfwd(hessian(log_partition))(x), THIRD),
    "jacfwd of a product": (
        lambda x: jacfwd(lambda y: ksubset.covariance_product(y, K, y))(x),
        COVARIANCE + torch.einsum("ijl,j->il", THIRD, ROW),
    ),
    "vmap": (lambda x: vmap(entropy)(x.expand(3, 6)), oracle.entropy(ROW, K).expand(3)),
    "vmap of grad": (lambda x: vmap(grad(log_partition))(x.expand(3, 6)), MU.expand(3, 6)),
    "vmap of vmap": (lambda x: vmap(vmap(marginals))(x.expand(3, 4, 6)), MU.expand(3, 4, 6)),
    "vmap, last axis": (lambda x: vmap(marginals, 1, 1)(x.expand(3, 6).T), MU.expand(3, 6).T),
    "dual numbers": (dual, COVARIANCE @ ROW),
    "simple": (
        lambda x: grad(lambda y: (ksubset.simple(y, K) * x).sum())(x),
        COVARIANCE @ ROW,
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    transformed, truth = TRANSFORMS[name]
    torch.testing.assert_close(transformed(ROW), truth)


@pytest.mark.parametrize(
    "name", ["grad", "jvp", "hessian", "vmap of grad", "jacrev", "grad of grad"]
)
def test_compiled_transforms(name: str) -> None:
    transformed, truth = TRANSFORMS[name]
    compiled = torch.compile(transformed, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(ROW), truth)


def test_vmap_over_sizes_and_samples() -> None:
    mu = vmap(lambda k: ksubset.marginals(ROW, k))(torch.tensor([1, 2, 3]))
    assert torch.allclose(mu.sum(-1), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    z = vmap(lambda x: ksubset.simple(x, K, (5,)), randomness="different")(ROW.expand(4, 6))
    assert z.shape == (4, 5, 6)
    assert (z.sum(-1) == K).all()
    same = vmap(lambda x: ksubset.simple(x, K, (5,)), randomness="same")(ROW.expand(4, 6))
    assert (same == same[0]).all()
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda x: ksubset.simple(x, K))(ROW.expand(4, 6))


def test_a_derivative_too_many_raises() -> None:
    for wrap in (jacrev, jacfwd):
        with pytest.raises(NotImplementedError, match="beyond the third cumulants"):
            wrap(hessian(marginals))(ROW)
        with pytest.raises(NotImplementedError, match="beyond the third cumulants"):
            wrap(wrap(lambda x: ksubset.covariance_product(x, K, ROW)))(ROW)


def test_compile_with_a_dynamic_batch() -> None:
    @torch.compile(fullgraph=True, dynamic=True)
    def step(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = ksubset.simple(x, K)
        return (z * v).sum(), ksubset.entropy(x, K), z

    for batch in (4, 7, 5):
        x, v = torch.randn(batch, 6, requires_grad=True), torch.randn(batch, 6)
        loss, bits, z = step(x, v)
        assert (z.sum(-1) == K).all()
        torch.testing.assert_close(bits, ksubset.entropy(x, K))
        (gradient,) = torch.autograd.grad(loss, x)
        torch.testing.assert_close(gradient, ksubset.covariance_product(x, K, v))


@pytest.mark.parametrize(
    "function",
    [
        ksubset.marginals,
        ksubset.log_partition,
        ksubset.log_prob_exactly_k,
        ksubset.kl_to_uniform,
        ksubset.mode,
        ksubset.sample_indices,
        lambda x, k: ksubset.kl_divergence(x, x.flip(-1), k),
        lambda x, k: ksubset.KSubset(k, logits=x, validate_args=False).variance,
    ],
)
def test_functions_compile(function: Callable[..., Tensor]) -> None:
    compiled = torch.compile(lambda x: function(x, K), fullgraph=True, backend="aot_eager")
    x = torch.randn(5, 6)
    result = compiled(x)
    if result.is_floating_point():
        torch.testing.assert_close(result, function(x, K))
    else:
        assert result.shape == (5, K)


def test_export() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return ksubset.marginals(x, K), ksubset.sample(x, K)

    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(Model(), (torch.randn(4, 6),), dynamic_shapes={"x": {0: batch}})
    x = torch.randn(9, 6)
    mu, z = program.module()(x)
    torch.testing.assert_close(mu, ksubset.marginals(x, K))
    assert (z.sum(-1) == K).all()


def test_autocast() -> None:
    layer = torch.nn.Linear(4, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = layer(torch.randn(3, 4))
        assert logits.dtype == torch.bfloat16
        z = ksubset.simple(logits, K)
        bits = ksubset.entropy(logits, K)
        loss = (z * torch.arange(6.0)).sum() + bits.sum()
    assert z.dtype == torch.bfloat16
    assert bits.dtype == torch.float32
    loss.backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.isfinite().all()
    torch.testing.assert_close(bits, ksubset.entropy(logits.float(), K))


class Selector(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.randn(6))
        self.weights = torch.nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        mu = ksubset.marginals(self.logits.expand(len(x), -1), K)
        return (x * mu * self.weights).sum(-1)


def _one_of_two(rank: int, store: str) -> None:
    torch.manual_seed(0)
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(store, 2), rank=rank, world_size=2
    )
    plain = Selector()
    parallel = torch.nn.parallel.DistributedDataParallel(copy.deepcopy(plain))
    x = torch.randn(8, 6)
    plain(x).square().mean().backward()
    parallel(x[rank::2]).square().mean().backward()
    torch.testing.assert_close(plain.logits.grad, parallel.module.logits.grad)
    assert plain.logits.grad is not None
    assert plain.logits.grad.abs().sum() > 0
    os._exit(0)  # torch may wait for ever for the threads of a group that goes


def test_distributed_data_parallel(tmp_path: Path) -> None:
    processes = [
        multiprocessing.get_context("spawn").Process(
            target=_one_of_two, args=(rank, f"{tmp_path}/store")
        )
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        process.kill()
    assert [process.exitcode for process in processes] == [0, 0]


EACH = torch.tensor([1, 2, 3])


def operators() -> dict[str, tuple[object, ...]]:
    x, u, v = (torch.randn(3, 6, requires_grad=True) for _ in range(3))
    k = EACH
    t = torch.ops.ksubset.tilt(x, k, "auto").detach().requires_grad_()
    seeds = torch.randint(1 << 60, (2, 3))
    z = torch.ops.ksubset.sample(x, k, seeds, "auto")[0].detach()
    each = torch.randn(2, 3, 6, requires_grad=True)
    _, mu, _, log_mass, _ = (part.detach() for part in torch.ops.ksubset.infer(x, k, "auto"))
    t_p, t_q = (t.detach().double().requires_grad_() for _ in range(2))
    return {
        "divergence": (t_p, t_q, mu, mu, 1 - mu, log_mass, log_mass, k, k, "auto"),
        "tilt": (x, k, "auto"),
        "infer": (x, k, "spectral"),
        "entropy": (x, k, "dp"),
        "covariance_product": (t, k, v, "tree"),
        "sample": (x, k, seeds, "auto"),
        "log_outcome": (t, mu, log_mass, k, z, "auto"),
        "mode": (x.detach(), k),
        "swap": (x, k, seeds, "auto", "product"),
        "swap_product": (t.detach(), k, z, each, "auto", "exact"),
        "exchange": (t.detach(), k, z[0], v),
    } | {"third_cumulant_product": (t.detach(), k, u.detach(), v.detach(), "spectral")}


@pytest.mark.parametrize("name", operators())
def test_opcheck(name: str) -> None:
    torch.library.opcheck(getattr(torch.ops.ksubset, name).default, operators()[name])


@pytest.mark.parametrize("name", [name for name in operators() if name != "divergence"])
def test_opcheck_of_one_k_for_all_rows(name: str) -> None:
    """The overload that compiled code calls."""
    arguments = tuple(2 if x is EACH else x for x in operators()[name])
    torch.library.opcheck(getattr(torch.ops.ksubset, name).same, arguments)


def test_every_operator_is_checked() -> None:
    from ksubset.functional import _primitives

    assert set(_primitives.__all__) == set(operators())
