"""Images to learn from: grey levels between 0 and 1, a row each."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from experiments.datasets.files import DataFile, data_folder

_SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist"
_MNIST = {
    "train": DataFile(
        "train-images-idx3-ubyte",
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    "test": DataFile(
        "t10k-images-idx3-ubyte",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
}
_IDX_OF_BYTES_IN_3D = 0x803
# Of the 1797; a whole number of batches.
_DIGITS_FOR_TRAINING = 1500
_ENLARGED = 2


@dataclass(frozen=True)
class Images:
    """A dataset, (images, height · width) each."""

    name: str
    train: Tensor
    test: Tensor
    height: int
    width: int

    @property
    def pixels(self) -> int:
        """Of an image."""
        return self.height * self.width

    def to(self, device: torch.device, dtype: torch.dtype) -> Images:
        """Elsewhere, once for all who use it."""
        return replace(self, train=self.train.to(device, dtype), test=self.test.to(device, dtype))

    def binarized(self, seed: int = 20_230_501) -> Images:
        """Every pixel 1 with its grey level's probability, drawn once and for all."""
        generator = torch.Generator().manual_seed(seed)
        return replace(
            self,
            train=torch.bernoulli(self.train, generator=generator),
            test=torch.bernoulli(self.test, generator=generator),
        )

    def held_out(self, count: int) -> Images:
        """The last images of the training set in place of the test set, to choose settings by."""
        if not 0 < count < len(self.train):
            raise ValueError(f"of {len(self.train)} images {count} cannot be held out")
        return replace(self, train=self.train[:-count], test=self.train[-count:])


def load(name: str, folder: Path | None = None, download: bool = False) -> Images:
    """ "digits" or "mnist"."""
    if name == "digits":
        return _digits()
    if name == "mnist":
        return _mnist(data_folder(folder, name), download)
    raise ValueError(f"data must be 'digits' or 'mnist', got {name!r}")


def _digits() -> Images:
    # Ships inside scikit-learn: nothing is fetched.
    from sklearn.datasets import load_digits

    grey = torch.from_numpy(load_digits().images.astype(np.float32) / 16)
    # Enlarged, so that an image has enough to say for a code to be worth its nats.
    large = F.interpolate(grey[:, None], scale_factor=_ENLARGED, mode="bicubic").clamp(0, 1)
    rows, side = large.flatten(1), large.shape[-1]
    # In the order of the file, which is by writer: the last writers are the test set.
    return Images("digits", rows[:_DIGITS_FOR_TRAINING], rows[_DIGITS_FOR_TRAINING:], side, side)


def _mnist(folder: Path, download: bool) -> Images:
    if download:
        for file in _MNIST.values():
            file.download(folder, _SOURCE)
    train, test = (_idx(file.read(folder), file.name) for file in _MNIST.values())
    height, width = train.shape[1:]
    rows = [torch.from_numpy(x.reshape(len(x), -1).astype(np.float32) / 255) for x in (train, test)]
    return Images("mnist", rows[0], rows[1], height, width)


def _idx(content: bytes, name: str) -> np.ndarray:
    """Images (count, height, width) of the IDX format: a magic number, the sizes, bytes."""
    magic, *shape = struct.unpack(">4I", content[:16])
    pixels = np.frombuffer(content, np.uint8, offset=16)
    if magic != _IDX_OF_BYTES_IN_3D or pixels.size != np.prod(shape):
        raise ValueError(f"{name} is not an IDX file of images of bytes")
    return pixels.reshape(shape)
