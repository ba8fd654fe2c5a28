"""The state of a job in one file: whole or not at all, and nothing in it is unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from experiments.datasets.files import write_atomically


@dataclass
class Progress:
    """How far a job is: epochs done, and the losses after each."""

    epochs: int = 0
    history: list[dict[str, list[float]]] = field(default_factory=list)


def write(path: Path, job: str, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
    """Tensors may be on any device."""
    about = {"job": job, "progress": json.dumps(vars(progress), allow_nan=True)}
    content = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    write_atomically(path, save(content, about))


def read(path: Path, job: str) -> tuple[Progress, dict[str, Tensor]] | None:
    """What was written for this job, or None if nothing was."""
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            about: dict[str, Any] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"checkpoint {path} is not a complete safetensors file: {error}") from None
    if about.get("job") != job:
        raise ValueError(f"checkpoint {path} is of another job: {about.get('job')!r}")
    try:
        progress = Progress(**json.loads(about["progress"]))
        complete = progress.epochs == len(progress.history)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"checkpoint {path} is damaged: {error!r}") from None
    if not complete:
        raise ValueError(
            f"checkpoint {path} is damaged: {progress.epochs} epochs, losses of "
            f"{len(progress.history)}"
        )
    return progress, tensors


@torch.no_grad()
def load(target: Mapping[str, Tensor], source: Mapping[str, Tensor], path: Path) -> None:
    """In place: a captured step goes on with the tensors it knows."""
    if target.keys() != source.keys():
        raise ValueError(f"checkpoint {path} holds other tensors than the job has")
    for name, value in target.items():
        if value.shape != source[name].shape:
            raise ValueError(
                f"checkpoint {path}: {name} has the shape {tuple(source[name].shape)}, not "
                f"{tuple(value.shape)}"
            )
        value.copy_(source[name])
