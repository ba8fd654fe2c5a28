"""Data files: read only if they are what they should be."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.datasets import images
from experiments.datasets.files import DataFile, data_folder
from experiments.datasets.images import Images, load

Contents = dict[str, bytes]


@pytest.fixture
def contents(monkeypatch: pytest.MonkeyPatch) -> Contents:
    """Two small files in MNIST's place."""
    generator = np.random.default_rng(0)
    found, known = {}, {}
    for name, count in (("train", 7), ("test", 3)):
        pixels = generator.integers(0, 256, (count, 4, 5), dtype=np.uint8)
        content = struct.pack(">4I", 0x803, *pixels.shape) + pixels.tobytes()
        found[f"{name}-images"] = content
        known[name] = DataFile(f"{name}-images", hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(images, "_MNIST", known)
    return found


def write(contents: Contents, folder: Path, zipped: bool = True) -> None:
    for name, content in contents.items():
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


@pytest.mark.parametrize("zipped", [True, False])
def test_idx_files(contents: Contents, tmp_path: Path, zipped: bool) -> None:
    write(contents, tmp_path, zipped)
    data = load("mnist", tmp_path)
    assert (data.height, data.width, data.pixels) == (4, 5, 20)
    assert data.train.shape == (7, 20)
    assert data.train.dtype == torch.float32
    raw = np.frombuffer(contents["test-images"], np.uint8, offset=16)
    np.testing.assert_allclose(data.test.numpy().ravel() * 255, raw, atol=1e-4)


def test_the_folder_is_found(
    contents: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KSUBSET_DATA", raising=False)
    with pytest.raises(ValueError, match="needs --data-dir, or the environment variable KSUBSET"):
        load("mnist")
    (tmp_path / "mnist").mkdir()
    write(contents, tmp_path / "mnist")
    monkeypatch.setenv("KSUBSET_DATA", str(tmp_path))
    assert len(load("mnist").train) == 7
    assert data_folder(tmp_path, "mnist") == tmp_path


def test_bad_files(contents: Contents, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"train-images does not exist.*--download"):
        load("mnist", tmp_path)
    write(contents, tmp_path)
    target = tmp_path / "train-images.gz"
    whole = target.read_bytes()
    for cut in (0, 5, len(whole) // 2, len(whole) - 1):
        target.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"not a complete gzip|truncated or altered"):
            load("mnist", tmp_path)
    altered = bytearray(contents["train-images"])
    altered[40] ^= 1
    target.write_bytes(gzip.compress(bytes(altered)))
    with pytest.raises(ValueError, match="is not the train-images it should be"):
        load("mnist", tmp_path)
    target.write_bytes((tmp_path / "test-images.gz").read_bytes())
    with pytest.raises(ValueError, match="is not the train-images it should be"):
        load("mnist", tmp_path)
    target.write_bytes(b"<html>404</html>")
    with pytest.raises(ValueError, match="not a complete gzip file"):
        load("mnist", tmp_path)
    target.unlink()
    (tmp_path / "train-images").write_bytes(contents["train-images"][:-1])
    with pytest.raises(ValueError, match="truncated or altered"):
        load("mnist", tmp_path)
    with pytest.raises(ValueError, match="data must be 'digits' or 'mnist', got 'cifar'"):
        load("cifar")


def test_download(contents: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, folder = tmp_path / "source", tmp_path / "data"
    source.mkdir()
    write(contents, source)
    monkeypatch.setattr(images, "_SOURCE", source.as_uri())
    assert len(load("mnist", folder, download=True).train) == 7
    (source / "train-images.gz").unlink()
    assert len(load("mnist", folder, download=True).train) == 7  # what is there is not fetched

    (folder / "train-images.gz").unlink()
    with pytest.raises(OSError, match="could not be fetched"):
        load("mnist", folder, download=True)
    (source / "train-images.gz").write_bytes(gzip.compress(b"something else"))
    with pytest.raises(ValueError, match="is not the train-images it should be"):
        load("mnist", folder, download=True)
    assert sorted(p.name for p in folder.iterdir()) == ["test-images.gz"]


def test_digits_are_inside_scikit_learn() -> None:
    data = load("digits")
    assert (len(data.train), len(data.test), data.height, data.width) == (1500, 297, 16, 16)
    assert 0 <= data.train.min() < data.train.max() <= 1


def test_binary_and_held_out_images() -> None:
    data = Images("x", torch.rand(2000, 4), torch.rand(500, 4), 2, 2)
    binary = data.binarized()
    assert set(binary.train.unique().tolist()) == {0.0, 1.0}
    assert abs((binary.train - data.train).mean()) < 0.03
    assert torch.equal(binary.test, data.binarized().test)
    part = data.held_out(300)
    assert torch.equal(torch.cat([part.train, part.test]), data.train)
    with pytest.raises(ValueError, match="of 2000 images 2000 cannot be held out"):
        data.held_out(2000)
