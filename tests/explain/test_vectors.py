"""Vectors of words against a dense decomposition of the matrix that the documentation describes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ksubset.explain import word_vectors


def table(texts: np.ndarray, size: int, window: int) -> np.ndarray:
    counts = np.zeros((size, size))
    for text in texts:
        for i, a in enumerate(text):
            for j in range(i + 1, min(i + window, len(text) - 1) + 1):
                if a and text[j]:
                    counts[a, text[j]] += 1 / (j - i)
                    counts[text[j], a] += 1 / (j - i)
    rows = counts.sum(1)
    columns = rows**0.75 * rows.sum() / (rows**0.75).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        said = np.log(counts * rows.sum() / np.outer(rows, columns))
    return np.where(counts > 0, np.maximum(said, 0), 0)


@pytest.mark.parametrize("window", [1, 4])
def test_the_documented_matrix(window: int) -> None:
    x = torch.randint(0, 12, (40, 15), generator=torch.Generator().manual_seed(1))
    left, values, _ = np.linalg.svd(table(x.numpy(), 12, window))
    expected = left[:, :5] * np.sqrt(values[:5])
    norms = np.linalg.norm(expected, axis=1, keepdims=True)
    expected[1:] /= norms[1:]
    found = word_vectors(x, dimensions=5, window=window).numpy()
    assert found.shape == (12, 5)
    assert not found[0].any()
    # Singular vectors have no sign.
    np.testing.assert_allclose(found[1:] @ found[1:].T, expected[1:] @ expected[1:].T, atol=1e-4)


def test_words_that_stand_alone_and_texts_of_one_word() -> None:
    x = torch.tensor([[3, 0, 0], [1, 2, 0], [0, 4, 0]])
    vectors = word_vectors(x, 9)
    assert vectors.shape == (9, 8)
    assert vectors.isfinite().all()
    norms = vectors.norm(dim=-1)
    torch.testing.assert_close(norms, torch.tensor([0.0, 1, 1, 0, 0, 0, 0, 0, 0]))
    assert not word_vectors(x[2:]).any()
    assert word_vectors(x[:, :1]).shape == (4, 3)
    assert word_vectors(x[:0], 3).shape == (3, 2)


def test_layout_type_and_seed_do_not_matter() -> None:
    x = torch.randint(0, 30, (60, 20), generator=torch.Generator().manual_seed(0))
    expected = word_vectors(x, dimensions=6)
    assert (word_vectors(x.T.contiguous().T.to(torch.int32), dimensions=6) == expected).all()
    other = word_vectors(x, dimensions=6, seed=5)
    torch.testing.assert_close(other @ other.T, expected @ expected.T, atol=0.05, rtol=0)


def test_clear_errors() -> None:
    x = torch.tensor([[1, 2, 3]])
    with pytest.raises(TypeError, match=r"integers \(texts, length\), got torch\.float32"):
        word_vectors(x.float())
    with pytest.raises(TypeError, match="x must be integers"):
        word_vectors(x[0])
    with pytest.raises(TypeError, match="got list"):
        word_vectors([[1, 2]])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="from 0 to 2, got 1 to 3"):
        word_vectors(x, 3)
    with pytest.raises(ValueError, match="from 0 to 3, got -1 to 3"):
        word_vectors(torch.tensor([[-1, 3]]))
    with pytest.raises(ValueError, match="window must be an int of at least 1, got 0"):
        word_vectors(x, window=0)
    with pytest.raises(ValueError, match=r"dimensions must be an int of at least 1, got 2\.5"):
        word_vectors(x, dimensions=2.5)  # type: ignore[arg-type]
