"""A job of the sweep: one stack of models, trained on one aspect."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from experiments.beer.methods import Method, estimator
from experiments.beer.training import Recipe, Training
from experiments.datasets.beer import Beer, beer
from experiments.sweep import Job

WORK = "experiments.beer.job:train"


def job(
    stage: str,
    aspect: str,
    methods: list[Method],
    seeds: list[int],
    recipe: Recipe,
    data_dir: Path,
) -> Job:
    """One method, a setting and a seed for every member."""
    first = methods[0]
    return Job(
        f"{stage}-{aspect}-{recipe.k}-{first.name}-{recipe.rate:g}",
        {
            "data_dir": str(data_dir),
            "aspect": aspect,
            "estimator": first.estimator,
            "options": dict(first.options),
            "members": [dict(method.settings) for method in methods],
            "seeds": seeds,
            "recipe": asdict(recipe),
        },
    )


def train(settings: dict[str, Any]) -> dict[str, Any]:
    """What came of every member; the words chosen by the first one only, to be looked at."""
    data = _data(settings["data_dir"], settings["aspect"])
    recipe = Recipe(**settings["recipe"])
    chosen = estimator(
        settings["estimator"], settings["options"], settings["members"], recipe.batch
    )
    trained = Training(data, recipe, chosen, settings["seeds"]).train()
    outcomes = [None if outcome is None else asdict(outcome) for outcome in trained]
    for outcome in outcomes[1:]:
        if outcome is not None:
            del outcome["chosen"], outcome["weights"]
    return {
        "members": outcomes,
        "training_from": data.training_from,
        "reviews": len(data.train),
        "sha256": data.sha256,
    }


@cache
def _data(folder: str, aspect: str) -> Beer:
    return beer(Path(folder), aspect)
