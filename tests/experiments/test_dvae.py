"""The VAE: its bounds against enumeration, and training that survives whatever happens to it."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from safetensors.torch import save
from typer.testing import CliRunner

from experiments.datasets.images import Images, load
from experiments.dvae import DiscreteVAE, checkpoints, figures, gradients, study, tables, timing
from experiments.dvae.__main__ import app
from experiments.dvae.gumbel import GumbelBackward
from experiments.dvae.jobs import Job, Mixed, jobs
from experiments.dvae.layers import StackedDense
from experiments.dvae.methods import METHODS, Method, chosen
from experiments.dvae.model import reconstruction_loss
from experiments.dvae.objective import Objective, Share, softmax_divergence
from experiments.dvae.optimizer import StackedAdam
from experiments.dvae.results import Outcome, at_equal_time, best, judge, stopped_early
from experiments.dvae.settings import Settings
from experiments.dvae.training import Recipe, Training, train
from experiments.report import Page
from experiments.stack import Dense
from ksubset import estimators, oracle

ROOT = Path(__file__).parents[2]
TINY = ["--k", "10", "--methods", "simple", "--epochs", "4", "--seeds", "1"]


def invoke(*options: str) -> Any:
    return CliRunner().invoke(app, list(options))


def command_of(module: Any) -> typer.Typer:
    app = typer.Typer()
    app.command()(module.main)
    return app


def results(folder: Path) -> Any:
    return json.loads((folder / "results.json").read_text())["results"]


def small_vae(k: int = 2) -> DiscreteVAE:
    vae = DiscreteVAE(pixels=6, k=k, groups=2, items=4, hidden=(8,))
    with torch.no_grad():
        # Codes that matter, and a posterior wide enough for importance weights to behave.
        for parameter in vae.decoder.parameters():
            parameter.mul_(2.5)
    return vae.double()


def test_bounds_against_enumeration() -> None:
    vae, x = small_vae(), torch.rand(5, 6).round().double()
    subsets = torch.stack(
        [torch.tensor(z) for z in itertools.product((0.0, 1.0), repeat=4) if sum(z) == 2]
    ).double()
    codes = torch.stack([torch.stack(pair) for pair in itertools.product(subsets, repeat=2)])
    with torch.no_grad():
        pixels = vae.decode(codes)[:, None].expand(-1, len(x), -1)
        likelihood = -reconstruction_loss(pixels, x)
        exact = likelihood.logsumexp(0) - math.log(len(codes))
        law = vae.encode(x)
        posterior = law.log_prob(codes[:, None]).sum(-1)
        divergence = (posterior.exp() * (posterior + math.log(len(codes)))).sum(0)
        elbo = (posterior.exp() * likelihood).sum(0) - divergence
        torch.testing.assert_close(vae.divergence(law.logits), divergence)
        torch.testing.assert_close(vae.elbo(x, 40_000), elbo, atol=0.05, rtol=0)
        bound = vae.importance_bound(x, 40_000)
        torch.testing.assert_close(bound, exact, atol=0.02, rtol=0)
        few = torch.stack([vae.importance_bound(x, 4) for _ in range(2000)]).mean(0)
        assert (elbo < few).all()
        assert (few < exact).all()
        drawn = vae.sample(50_000)
        torch.testing.assert_close(
            drawn.mean(0), vae.decode(codes).sigmoid().mean(0), atol=0.01, rtol=0
        )


def test_softmax_divergence_is_exact_for_one_item_only() -> None:
    logits = torch.randn(3, 2, 5, dtype=torch.float64)
    for k, same in ((1, True), (2, False)):
        entropy = torch.stack([oracle.entropy(row, k) for row in logits.reshape(-1, 5)])
        exact = (math.log(math.comb(5, k)) - entropy).reshape(3, 2).sum(-1)
        assert torch.allclose(softmax_divergence(logits), exact) is same


def test_a_stack_is_its_members() -> None:
    stack = DiscreteVAE(pixels=6, k=2, groups=2, items=4, hidden=(8,), stack=3)
    x, z = torch.rand(3, 5, 6), torch.rand(7, 3, 5, 2, 4)
    logits, pixels = stack.logits(x), stack.decode(z)
    for i in range(3):
        alone = stack.member(i)
        torch.testing.assert_close(alone.logits(x[i]), logits[i])
        torch.testing.assert_close(alone.decode(z[:, i]), pixels[:, i])
    assert not torch.equal(stack.member(0).logits(x[0]), stack.member(1).logits(x[0]))
    assert stack.sample(4).shape == (3, 4, 6)
    with pytest.raises(ValueError, match="member must be one of a stack of 3, got 3"):
        stack.member(3)
    with pytest.raises(ValueError, match="k must be between 1 and items - 1 = 3, got 4"):
        DiscreteVAE(items=4, k=4)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.key)
def test_a_share_of_a_batch_has_the_noise_of_the_whole(method: Method) -> None:
    vae = DiscreteVAE(pixels=6, k=method.k, hidden=(8,), stack=2).double()
    x = torch.rand(2, 6, 6).double()
    estimator = Job((method, method), (0, 1)).estimator().double()

    def gradients(share: Share) -> tuple[list[torch.Tensor], torch.Tensor]:
        vae.zero_grad()
        objective = Objective(vae, estimator, method.samples, method.divergence, share)
        generator = torch.Generator().manual_seed(5)
        loss, parts = objective(x[:, share.of(6)], generator)
        loss.backward()
        return [p.grad.clone() for p in vae.parameters() if p.grad is not None], parts

    whole, parts = gradients(Share())
    shared = [gradients(Share(rank, 2)) for rank in range(2)]
    for value, *both in zip(whole, *(found for found, _ in shared), strict=True):
        torch.testing.assert_close(value, both[0] + both[1])
    torch.testing.assert_close(parts, shared[0][1] + shared[1][1])
    with pytest.raises(ValueError, match="a batch of 7 cannot be shared by 2 processes"):
        Share(0, 2).of(7)


def test_grids_and_stacks() -> None:
    found = {m.key: len(m.variants()) for m in METHODS}
    assert found["k10-imle-sog"] == 4 * 7 * 4
    assert found["k10-simple"] == 4
    planned = jobs([v for m in METHODS for v in m.variants()], [0], 10)
    assert max(map(len, planned)) == 10
    assert sum(map(len, planned)) == sum(found.values())
    assert len({job.name for job in planned}) == len(planned)
    (one,) = jobs(chosen([10], "imle-sog")[0].variants(), [0], 200)
    strengths = one.estimator().strength
    assert isinstance(strengths, torch.Tensor)
    assert strengths.shape == (112, 1, 1, 1)
    # One sample and four, exact samples and others; the score function, MuProp and the double
    # control variate each have their own.
    assert len(jobs(chosen([10], "all"), [0], 64)) == 7
    assert [m.name for m in chosen([1], "main")] == [
        "swap", "simple", "st-gumbel", "reinmax", "st-gapped",
    ]  # fmt: skip
    for words, grids in (("2", [(2.0,), (2.0,)]), ("2/0.5,0.25", [(2.0,), (0.5, 0.25)])):
        tuned = Settings(methods="st-gapped,simple", tune=True, temperatures=words).contest()
        assert [m.grid for m in tuned if m.grid] == [(("temperature", grid),) for grid in grids]
        assert [len(m.variants()) for m in tuned if m.grid] == [4 * len(grid) for grid in grids]
    (long,) = chosen([40], "simple", 1, 400, [1.5])
    assert (long.key, long.k, long.groups, long.items) == ("1x400-k40-simple-kl1.5", 40, 1, 400)
    assert Job((long,), (0,)).model(6).logits(torch.rand(1, 2, 6)).shape == (1, 2, 1, 400)
    for words, message in (("simpel", "methods must be among all, main, swap"), ("", "got ''")):
        with pytest.raises(ValueError, match=message):
            chosen([10], words)


def test_a_stack_of_several_estimators() -> None:
    parts = [estimators.create("simple"), estimators.create("st_gumbel", temperature=0.5)]
    logits = torch.randn(3, 5, 2, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(7, 3, 5, 2, 4, dtype=torch.float64)
    z = Mixed(parts, [1, 2]).sample(logits, 1, (7,), generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    alone = [
        parts[0].sample(logits[:1], 1, (7,), generator=generator),
        parts[1].sample(logits[1:], 1, (7,), generator=generator),
    ]
    assert torch.equal(z, torch.cat(alone, 1))
    (found,) = torch.autograd.grad(z, logits, weight)
    (expected,) = torch.autograd.grad(torch.cat(alone, 1), logits, weight)
    assert torch.equal(found, expected)
    assert found[1:].any()


def test_every_member_has_its_own_adam() -> None:
    rates = [1e-3, 5e-4, 5e-4, 1e-3]
    start = {"weight": torch.randn(4, 3, 5), "bias": torch.randn(4, 3)}
    together = {name: torch.nn.Parameter(x.clone()) for name, x in start.items()}
    ours = StackedAdam(together.items(), rates)
    alone = [[torch.nn.Parameter(x[i].clone()) for x in start.values()] for i in range(4)]
    theirs = [torch.optim.Adam(alone[i], lr=rates[i], eps=1e-7) for i in range(4)]
    for _ in range(20):
        # Of a size at which epsilon matters.
        gradients = [1e-6 * torch.randn_like(x) for x in start.values()]
        for parameter, gradient in zip(together.values(), gradients, strict=True):
            parameter.grad = gradient.clone()
        ours.step()
        for i in range(4):
            for parameter, gradient in zip(alone[i], gradients, strict=True):
                parameter.grad = gradient[i].clone()
            theirs[i].step()
    for found, *members in zip(together.values(), *alone, strict=True):
        torch.testing.assert_close(found, torch.stack(members), rtol=1e-6, atol=1e-7)
    assert any(name.startswith("exp_avg_sq.weight") for name in ours.state())


def test_layers_of_a_stack() -> None:
    ours, plain = (layer(5, 3, 4).double() for layer in (StackedDense, Dense))
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_()
    plain.load_state_dict(ours.state_dict())
    x = torch.randn(4, 7, 5, dtype=torch.float64, requires_grad=True)
    g = torch.randn(4, 7, 3, dtype=torch.float64)
    found, expected = (
        torch.autograd.grad(layer(x), [x, *layer.parameters()], g) for layer in (ours, plain)
    )
    torch.testing.assert_close(found, expected)
    assert found[1].is_contiguous()


def test_weights_of_the_divergence_are_for_training_only() -> None:
    vae = DiscreteVAE(pixels=6, k=2, groups=2, items=4, hidden=(8,), stack=2)
    x, simple = torch.rand(2, 5, 6), estimators.create("simple")
    losses, parts = zip(
        *(
            Objective(vae, simple, kl_weights=weights)(x, torch.Generator().manual_seed(0))
            for weights in ([1.0, 1.0], [1.5, 3.0])
        ),
        strict=True,
    )
    torch.testing.assert_close(parts[0], parts[1])
    more = (parts[0][1] * torch.tensor([0.5, 2.0])).sum() / 5
    torch.testing.assert_close(losses[1] - losses[0], more)


def test_gumbel_softmax_taken_apart() -> None:
    logits = torch.tensor([1.0, 0.0, -0.5, 0.3], dtype=torch.float64)
    # Coefficients that depend on the sample: the product is what a loss would pass back.
    table = torch.tensor([[2.0, 0, 1, -1], [0, 1, -3, 0], [1, 0, 0, 2], [0, -1, 1, 0]]).double()

    def of(estimator: estimators.Pathwise) -> torch.Tensor:
        torch.manual_seed(0)
        rows = logits.expand(50_000, 4).clone().requires_grad_()
        z = estimator.sample(rows, 1)
        (found,) = torch.autograd.grad(z, rows, (z @ table).detach())
        return found

    usual = of(estimators.create("st_gumbel", temperature=0.7))
    coupled, averaged = of(GumbelBackward(0.7)), of(GumbelBackward(0.7, draws=8))
    independent = of(GumbelBackward(0.7, coupled=False))
    error = 5 * (usual.var(0) / len(usual)).sqrt()
    assert ((coupled.mean(0) - usual.mean(0)).abs() < error).all()
    assert ((averaged.mean(0) - usual.mean(0)).abs() < error).all()
    assert ((independent.mean(0) - usual.mean(0)).abs() > error).any()
    assert (averaged.var(0) < 0.9 * usual.var(0)).all()
    with pytest.raises(ValueError, match="draws must be at least 1, got 0"):
        GumbelBackward(draws=0)
    with pytest.raises(ValueError, match="k must be 1, got 2"):
        GumbelBackward().sample(logits, 2)


def outcome(name: str, k: int, *last: float) -> Outcome:
    parts = {
        "reconstruction": [[x] for x in last], "divergence": [[0.0] for _ in last],
        "own reconstruction": [[x - 1] for x in last],
    }  # fmt: skip
    return Outcome(Method(name, name, k, "simple"), list(range(len(last))), parts, [1])


def test_comparisons_of_curves() -> None:
    def of(name: str, *losses: float) -> Outcome:
        parts = {"reconstruction": [list(losses)], "divergence": [[0.0] * len(losses)]}
        return Outcome(Method(name, name, 10, "simple"), [0], parts, [2, 4, 6, 7])

    swap, slow, slower = of("swap", 5, 4, 3, 2), of("slow", 5, 4, 1, 2), of("slower", 5, 4, 3, 1)
    times = {"k10-swap": 100.0, "k10-slow": 150.0, "k10-slower": 400.0}
    paid = at_equal_time([slower, swap, slow, of("untimed", 1, 1, 1, 1)], times)
    assert [(p.outcome.method.name, p.epoch) for p in paid] == [
        ("slower", None), ("swap", 7), ("slow", 4),
    ]  # fmt: skip
    assert [p.elbo[0, -1] for p in paid[1:]] == [2, 4]
    assert not at_equal_time([slow], times)
    (early,) = stopped_early([slow, swap], [of("slow", 3, 2, 9, math.nan)])
    assert (early.outcome, early.epoch, early.elbo[0, -1]) == (slow, 4, 4)


def test_verdicts() -> None:
    ours, worse = outcome("simple", 10, 100, 101, 99), outcome("imle-sog", 10, 110, 111, 112)
    near = outcome("imle-gumbel", 10, 100, 101, 103)
    assert [c.held for c in judge([ours, worse])] == [True, True]
    assert [c.held for c in judge([ours, worse, near])] == [False, False]
    assert not judge([outcome("imle-sog", 10, 110), outcome("simple", 10, 90)])
    assert not judge([ours, outcome("st-gumbel", 1, 1, 2, 3)])
    lost = outcome("imle-sog", 10, math.nan, 200, 200)
    for rivals in ([lost, worse], [worse, lost]):
        assert [c.held for c in judge([ours, *rivals])] == [True, True]
    diverged = outcome("a", 10, math.nan)
    assert best([diverged, ours], lambda o: o.elbo) == ours.method
    with pytest.raises(ValueError, match="every setting of a diverged"):
        best([diverged], lambda o: o.elbo)


def test_a_run_and_what_is_left_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small codes and narrow pictures: drawing takes longer than training.
    monkeypatch.setattr(figures, "_COLUMNS", 2)
    output = tmp_path / "run"
    options = ["--groups", "4x4", "--k", "2,1", "--methods", "simple,softsub"]
    options += ["--epochs", "1", "--seeds", "2", "--batch", "300"]
    options += ["--tune", "--tune-epochs", "1", "--binarize", "--stack", "8", "--tensorboard"]
    result = invoke(*options, "--output", str(output))
    assert result.exit_code == 0, result.output
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    content = json.loads((output / "results.json").read_text())
    assert {key: len(g) for key, g in content["grids"].items()} == {
        "4x4-k2-simple": 4, "4x4-k2-softsub": 16, "4x4-k1-simple": 4,
    }  # fmt: skip
    for found in content["results"]:
        assert all(len(seed) == 1 for curve in found["losses"].values() for seed in curve)
        elbo = sum(found["losses"][name][0][-1] for name in ("reconstruction", "divergence"))
        assert -found["importance"][0] < elbo + 0.5
    page = (output / "report.html").read_text()
    assert re.search(r", in \d+ seconds\.", page)
    assert page.count("<svg") == 8
    assert not any(mark in page for mark in ('src="http', 'href="http', "@import", "url(http"))
    assert list((output / "tensorboard" / "training").rglob("events*"))
    vae = DiscreteVAE.load(output / "models" / "4x4-k2-simple-1.safetensors")
    x = load("digits").binarized().test
    recorded = content["results"][0]["losses"]["divergence"][1][-1]
    with torch.no_grad():
        divergence = float(vae.divergence(vae.logits(x)).mean())
    assert divergence == pytest.approx(recorded, rel=1e-4)
    with pytest.raises(
        ValueError, match=r"is a folder; of weights files it holds: .*4x4-k2-simple"
    ):
        DiscreteVAE.load(output)
    broken = tmp_path / "broken.safetensors"
    whole = (output / "models" / "4x4-k2-simple-1.safetensors").read_bytes()
    broken.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="not a complete safetensors file"):
        DiscreteVAE.load(broken)

    printed = CliRunner().invoke(command_of(tables), [str(output / "results.json")])
    assert printed.exit_code == 0, printed.output
    last = content["results"][0]["losses"]
    assert f"| {sum(np.mean(last['divergence'], 0)):.2f} ± " in printed.output
    refused = CliRunner().invoke(command_of(tables), [str(output / "settings.json")])
    assert "is not a results.json of this study" in refused.output

    again = invoke(*options, "--output", str(output))
    assert again.exit_code == 2
    assert "holds a run already" in again.output


# The study, killed when its first checkpoint is written.
KILLED = """
import os
from experiments.dvae.__main__ import app
from experiments.dvae.training import Training
save = Training.save
def save_and_die(self, path):
    save(self, path)
    os.kill(os.getpid(), 9)
Training.save = save_and_die
app()
"""


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report of how long it took, without them: they take longer than a small study."""
    monkeypatch.setattr(study, "page", lambda *given: Page("", f"in {given[-1]}."))


@pytest.mark.usefixtures("no_figures")
def test_killed_and_resumed(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert invoke(*TINY, "--output", str(whole)).exit_code == 0
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *TINY, "--checkpoint-every", "1", "--output", str(broken)],
        cwd=ROOT, stdout=subprocess.DEVNULL, check=False,
        # Sums are the same only if as many threads share them.
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL
    partial = tmp_path / "broken.partial"
    assert not broken.exists()

    refused = invoke(*TINY, "--output", str(broken))
    assert refused.exit_code == 2
    assert "is an unfinished run: --resume continues it" in " ".join(refused.output.split())
    other = invoke(*TINY, "--seed", "1", "--resume", "--output", str(broken))
    assert other.exit_code == 2
    assert "was begun with seed = 0, not 1" in " ".join(other.output.split())
    (checkpoint,) = partial.rglob("k10-simple-*")
    content = checkpoint.read_bytes()
    checkpoint.write_bytes(content[:-100])
    damaged = invoke(*TINY, "--resume", "--output", str(broken))
    assert damaged.exit_code == 2
    assert "is not a complete safetensors file" in " ".join(damaged.output.split())
    checkpoint.write_bytes(content)
    # The part that was killed took longer than anything a test waits for.
    (clock,) = partial.rglob("seconds.json")
    assert json.loads(clock.read_text())["seconds"] > 0
    clock.write_text(json.dumps({"seconds": 10_000.0}))

    # Not from the beginning.
    epochs = []
    on_epoch = study.Runner._train

    def counted(self: Any, trainings: Any, *rest: Any) -> None:
        epochs.extend(t.progress.epochs for t in trainings)
        on_epoch(self, trainings, *rest)

    study.Runner._train = counted  # type: ignore[method-assign]
    try:
        resumed = invoke(*TINY, "--resume", "--output", str(broken))
    finally:
        study.Runner._train = on_epoch  # type: ignore[method-assign]
    assert resumed.exit_code == 0, resumed.output
    assert epochs == [1]
    assert results(broken) == results(whole)
    seconds = json.loads((broken / "results.json").read_text())["seconds"]
    assert seconds > 10_000
    here = f"{seconds - 10_000:.0f} of them since it was resumed"
    assert f"in {seconds:.0f} seconds, {here}." in (broken / "report.html").read_text()
    assert "of them since it was resumed" in " ".join(resumed.output.split())
    assert "since it was resumed" not in (whole / "report.html").read_text()
    assert not list(broken.rglob("seconds.json"))
    for name in ("k10-simple-0.safetensors",):
        mine, theirs = (
            DiscreteVAE.load(folder / "models" / name).state_dict() for folder in (broken, whole)
        )
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)


def test_codes_of_another_shape_tested_now_and_then(tmp_path: Path) -> None:
    output, times = tmp_path / "run", tmp_path / "times.json"
    options = ["--groups", "2x30", "--k", "5", "--methods", "swap,swap-4,reinmax"]
    options += ["--kl-weight", "1,2", "--epochs", "3", "--test-every", "2", "--results-only"]
    timed = ["--groups", "2x30", "--k", "5", "--methods", "swap,reinmax", "--repeats", "1"]
    found = CliRunner().invoke(command_of(timing), [*timed, "--output", str(times)])
    assert found.exit_code == 0, found.output
    assert set(json.loads(times.read_text())) == {"2x30-k5-swap", "2x30-k5-reinmax"}
    options += ["--step-times", str(times), "--output", str(output)]
    result = invoke(*options)
    assert result.exit_code == 0, result.output
    assert sorted(p.name for p in output.iterdir()) == ["results.json", "settings.json"]
    by_key = {Method(**tables.about(r)).key: r for r in results(output)}
    assert len(by_key) == 6
    for r in by_key.values():
        assert r["epochs"] == [2, 3]
        assert len(r["losses"]["train divergence"][0]) == 3
        assert len(r["losses"]["divergence"][0]) == 2
    assert {"2x30-k5-swap-4", "2x30-k5-swap-kl2"} < by_key.keys()
    printed = CliRunner().invoke(
        command_of(tables), [str(output / "results.json"), "--times", str(times)]
    )
    assert "5 of 30 items in each of 2 groups" in printed.output
    assert "**Equal training time**" in printed.output
    again = tmp_path / "again.json"
    content = json.loads((output / "results.json").read_text())
    for part in content["results"]:
        part["method"]["label"], part["method"]["samples"] = "more samples", 9
        part["method"]["name"] += "-9"
    again.write_text(json.dumps(content))
    files, drawn = [str(output / "results.json"), str(again)], tmp_path / "curves.png"
    merged = CliRunner().invoke(command_of(tables), [*files, "--merge", "--figure", str(drawn)])
    assert merged.exit_code == 0, merged.output
    assert merged.output.count("5 of 30 items") == 1
    (one,) = re.findall(r"\*\*5 of 30.*?\n\n(.*?)\n\n", merged.output, re.DOTALL)
    assert one.count("\n") == 2 * len(by_key) + 1
    assert drawn.read_bytes()[:4] == b"\x89PNG"
    twice = CliRunner().invoke(command_of(tables), [files[0], files[0], "--merge"])
    assert "came more than once" in twice.output
    times.write_text("[1]")
    assert "is not a file of step times" in invoke(*options).output


def test_gradients_at_a_model(tmp_path: Path) -> None:
    vae = DiscreteVAE(pixels=256, k=1, groups=2, items=4, hidden=(8,))
    path = tmp_path / "model.safetensors"
    path.write_bytes(save(vae.state_dict(), vae.configuration()))
    options = ["--draws", "200", "--truth", "2000", "--images", "2", "--methods"]
    found = CliRunner().invoke(command_of(gradients), [str(path), *options, "swap,st-gapped"])
    assert found.exit_code == 0, found.output
    assert "swap" in found.output
    assert found.output.count("gapped ST") == 1
    found = CliRunner().invoke(command_of(gradients), [str(path), *options, "st-gapped", "--grids"])
    assert found.output.count("gapped ST") == 2


def test_a_model_that_diverges_does_not_take_others_along() -> None:
    data = Images("x", torch.rand(200, 6), torch.rand(50, 6), 2, 3)
    training = Training(jobs([METHODS[0]], [0, 1], 2)[0], data, Recipe(epochs=2))
    with torch.no_grad():
        training.vae.encoder[0].weight[1] = torch.nan
    train([training])
    last = training.progress.history[-1]
    assert all(math.isfinite(values[0]) for values in last.values())
    assert math.isnan(last["divergence"][1])
    assert math.isnan(last["train divergence"][1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"progress": "{}", "epochs": None}, None),
        ({"progress": "[1]"}, "is damaged"),
        ({"progress": "{"}, "is damaged"),
        ({"progress": None}, "is damaged: KeyError"),
        ({"progress": '{"epochs": 2, "history": []}'}, "2 epochs, losses of 0"),
        ({"progress": '{"epochs": -5, "history": []}'}, "-5 epochs"),
        ({"job": "another"}, "is of another job: 'another'"),
    ],
)
def test_damaged_checkpoints(
    change: dict[str, str | None], message: str | None, tmp_path: Path
) -> None:
    about = {"job": "this", "progress": '{"epochs": 0, "history": []}', **change}
    path = tmp_path / "checkpoint.safetensors"
    kept = {name: value for name, value in about.items() if value is not None}
    path.write_bytes(save({"x": torch.zeros(3)}, kept))
    if message is None:
        assert checkpoints.read(path, "this") is not None
        return
    with pytest.raises(ValueError, match=message):
        checkpoints.read(path, "this")


def test_the_recipe_is_part_of_a_run() -> None:
    method = METHODS[0]
    names = {
        jobs([m], [0], 1)[0].name
        for m in (
            method,
            replace(method, samples=2),
            replace(method, rate=0.1234567),
            replace(method, rate=0.1234568),
            replace(method, options=(("hard", True),)),
            replace(method, settings=(("temperature", 0.1234567),)),
            replace(method, settings=(("temperature", 0.1234568),)),
            replace(method, kl_weight=1.25),
            replace(method, groups=10, items=40),
        )
    }
    assert len(names) == 9
    identity = Settings().identity()
    assert "samples=1" in str(identity["the recipe of k10-simple"])


def test_bad_models(tmp_path: Path) -> None:
    vae = small_vae().float()
    path = tmp_path / "model.safetensors"
    for about, message in (
        ({}, "does not hold the weights of a DiscreteVAE"),
        ({"configuration": "[1]"}, "does not hold a whole DiscreteVAE"),
        ({"configuration": "{"}, "does not hold a whole DiscreteVAE"),
        ({"configuration": '{"pixels": 7}'}, "does not hold a whole DiscreteVAE"),
        ({"configuration": '{"wheels": 4}'}, "does not hold a whole DiscreteVAE"),
    ):
        path.write_bytes(save(vae.state_dict(), about))
        with pytest.raises(ValueError, match=message):
            DiscreteVAE.load(path)
    with pytest.raises(ValueError, match="take a member of the stack"):
        DiscreteVAE(stack=2).configuration()
    with pytest.raises(ValueError, match="stack must be at least 1"):
        DiscreteVAE(stack=0)
    for bound in (vae.elbo, vae.importance_bound):
        assert bound(torch.zeros(0, 6), 2).shape == (0,)
        assert bound(torch.zeros(0, 6), 2).shape == (0,)
        assert bound(torch.zeros(6), 2).shape == ()
        with pytest.raises(ValueError, match="num_samples must be at least 1, got 0"):
            bound(torch.zeros(5, 6), 0)


def test_two_processes_are_one(tmp_path: Path) -> None:
    options = ["--groups", "6x6", "--k", "3", "--methods", "simple,imle-gumbel", "--epochs", "1"]
    options += ["--seeds", "2", "--precision", "float64", "--results-only"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert invoke(*options, "--output", str(one)).exit_code == 0
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--standalone", "-m", "experiments.dvae", *options]
    done = subprocess.run(
        [*command, "--output", str(two)], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    for mine, theirs in zip(results(one), results(two), strict=True):
        assert mine["method"] == theirs["method"]
        for name, curves in mine["losses"].items():
            for a, b in zip(curves, theirs["losses"][name], strict=True):
                assert b == pytest.approx(a, rel=1e-9), name


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "cifar"], "data must be one of digits, mnist, got 'cifar'"),
        (["--k", "ten"], "k must be integers separated by commas, got 'ten'"),
        (["--k", "20"], "k must be between 1 and 19 for groups of 20 items, got 20"),
        (["--groups", "20"], "groups must be groups x items, as 20x20, got '20'"),
        (["--kl-weight", "-1"], "kl_weight must be numbers of at least 0"),
        (["--methods", "simpel"], "methods must be among all, main, swap"),
        (["--temperatures", "1"], "temperatures are those of grids: they need tune"),
        (["--tune", "--temperatures", "1/2/3"], "one list or one for each of 2 k, got '1/2/3'"),
        (["--tune", "--temperatures", "0"], "temperatures must be positive numbers"),
        (["--precision", "int8"], "precision must be one of"),
        (["--batch", "2000", *TINY], "batch 2000 is more than the 1500 images"),
        (["--data", "mnist", "--data-dir", "nowhere"], "does not exist"),
        (["--tune", "--methods", "softsub-own"], "are winners of grids: nothing to tune"),
    ],
)
def test_bad_options(options: list[str], message: str, tmp_path: Path) -> None:
    result = invoke(*options, "--output", str(tmp_path / "run"))
    assert result.exit_code in (1, 2)
    assert message in " ".join(result.output.split())
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_captured_together_and_alone_on_cuda() -> None:
    device = torch.device("cuda")
    data = Images("x", torch.rand(500, 36), torch.rand(200, 36), 6, 6).to(device, torch.float32)
    recipe = Recipe(epochs=2, device=device)
    planned = [jobs([method], [0, 1], 2)[0] for method in METHODS]
    together = [Training(job, data, recipe) for job in planned]
    train(together)
    for job, found in zip(planned, together, strict=True):
        alone, eager = (
            Training(job, data, recipe),
            Training(job, data, replace(recipe, graph=False)),
        )
        train([alone])
        train([eager])
        assert found.progress.history == alone.progress.history == eager.progress.history
