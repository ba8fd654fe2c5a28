"""Vectors of words, from the texts that are explained."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ksubset._needs import need


def word_vectors(
    x: Tensor, words: int | None = None, *, dimensions: int = 100, window: int = 4, seed: int = 0
) -> Tensor:
    r"""Vectors of words from the company they keep in these texts, for scorers and predictors that
    have few texts to learn from. Needs scikit-learn.

    Let :math:`C_{ab}` count how often words a and b are up to ``window`` places apart, each time
    divided by the distance, C be the sum of all counts, :math:`C_a` that of a row, and
    :math:`\tilde C_b \propto C_b^{3/4}` with the same sum. The vectors are the rows of
    :math:`U \Sigma^{1/2}` of the matrix
    :math:`\max(0, \log (C_{ab} C / (C_a \tilde C_b)))`, positive pointwise mutual information, with
    its largest singular values, each row divided by its norm.

    Args:
        x: numbers of words, (texts, length), integers; 0 is padding.
        words: how many words there are, padding included: one more than the largest number. None
            takes that of x.
        dimensions: of the vectors; fewer where there are fewer words.
        window: how far apart words may be.
        seed: of the randomised singular value decomposition.

    Returns:
        (words, dimensions), for ``torch.nn.Embedding.from_pretrained``; zero for padding and for
        words that never stand beside another.

    Examples:
        >>> from ksubset.explain import word_vectors
        >>> x = torch.tensor([[1, 3, 2, 0], [1, 4, 2, 0], [5, 6, 0, 0]])
        >>> vectors = word_vectors(x, dimensions=3)
        >>> vectors.shape
        torch.Size([7, 3])
        >>> alike, apart = vectors[3] @ vectors[4], vectors[3] @ vectors[5]
        >>> bool(alike > 0.99), bool(apart < 0.01)  # 3 and 4 keep the same company
        (True, True)
    """
    need("sklearn", "ksubset.explain.word_vectors", "sklearn")
    from scipy.sparse import coo_matrix
    from sklearn.utils.extmath import randomized_svd

    if not isinstance(x, Tensor) or x.dim() != 2 or x.is_floating_point() or x.is_complex():
        found = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"x must be integers (texts, length), got {found}")
    for name, value in (("dimensions", dimensions), ("window", window)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be an int of at least 1, got {value!r}")
    texts = x.cpu().numpy()
    least = int(texts.max(initial=0)) + 1
    size = least if words is None else words
    if texts.min(initial=0) < 0 or size < least:
        raise ValueError(
            f"x must hold numbers of words from 0 to {size - 1}, got {texts.min()} to {texts.max()}"
        )
    pairs = []
    for distance in range(1, min(window, texts.shape[1] - 1) + 1):
        left, right = texts[:, :-distance], texts[:, distance:]
        both = (left > 0) & (right > 0)
        counts = np.full(both.sum(), 1 / distance)
        pairs.append(coo_matrix((counts, (left[both], right[both])), shape=(size, size)).tocsr())
    table = sum(pairs[1:], pairs[0]) if pairs else coo_matrix((size, size)).tocsr()
    table = (table + table.T).tocoo()
    rows = np.asarray(table.sum(1)).ravel()
    dimensions = min(dimensions, max(size - 1, 1))
    if not rows.any():
        return torch.zeros(size, dimensions)
    columns = rows**0.75
    columns *= rows.sum() / columns.sum()
    said = np.log(table.data * rows.sum() / (rows[table.row] * columns[table.col]))
    some = said > 0
    matrix = coo_matrix((said[some], (table.row[some], table.col[some])), shape=table.shape).tocsr()
    left, values, _ = randomized_svd(matrix, dimensions, random_state=seed)
    vectors = left * np.sqrt(values)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return torch.from_numpy((vectors / np.where(norms > 1e-12, norms, np.inf)).astype(np.float32))
