"""Where functions of k go when sizes stand in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from torch import Tensor

from ksubset.sizes import Sizes

_FUNCTIONS: dict[str, Callable[..., Tensor]] = {}
_Function = TypeVar("_Function", bound=Callable[..., Tensor])


def of_sizes(function: _Function) -> _Function:
    """Register what a public function of the same name does with sizes."""
    _FUNCTIONS[function.__name__] = function
    return function


def with_sizes(
    function: Callable[..., Tensor], logits: Tensor, sizes: Sizes, *arguments: Any, **options: Any
) -> Tensor:
    """A public function of logits and k, with sizes for k: itself, if they are one size."""
    exact = sizes.exact
    if exact is not None:
        return function(logits, exact, *arguments, **options)
    return _FUNCTIONS[function.__name__](logits, sizes, *arguments, **options)


def divergence_of_sizes(
    function: Callable[..., Tensor],
    logits_p: Tensor,
    logits_q: Tensor,
    k: int | Tensor | Sizes,
    k_q: int | Tensor | Sizes | None,
    **options: Any,
) -> Tensor:
    """KL(p || q) where either has sizes for its k."""
    k, k_q = _plain(k), None if k_q is None else _plain(k_q)
    if isinstance(k, Sizes) or isinstance(k_q, Sizes):
        function = _FUNCTIONS[function.__name__]
    return function(logits_p, logits_q, k, k_q, **options)


def _plain(k: int | Tensor | Sizes) -> int | Tensor | Sizes:
    exact = k.exact if isinstance(k, Sizes) else None
    return k if exact is None else exact
