"""The Kuramoto–Sivashinsky equation v_t = -v_xx - v_xxxx - v v_x: data, library and truth."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pysindy
from scipy.io import loadmat

Array = npt.NDArray[Any]
NAMES = {  # PySINDy's, as a reader writes them
    "x0": "v", "x0^2": "v²", "x0_1": "v_x", "x0_11": "v_xx", "x0_111": "v_xxx", "x0_1111": "v_xxxx",
    "x0x0_1": "v v_x", "x0^2x0_1": "v² v_x", "x0x0_11": "v v_xx", "x0^2x0_11": "v² v_xx",
    "x0x0_111": "v v_xxx", "x0^2x0_111": "v² v_xxx", "x0x0_1111": "v v_xxxx",
    "x0^2x0_1111": "v² v_xxxx",
}  # fmt: skip
TRUTH = ("v_xx", "v_xxxx", "v v_x")

# Places and times that differences of the fourth order need.
_LEAST = 16


@dataclass(frozen=True)
class Field:
    """v at places x (n,) and times t (m,), (n, m), on a ring."""

    x: Array
    t: Array
    v: Array

    def with_noise(self, share: float, seed: int) -> Field:
        """White noise, its deviation a share of the field's."""
        noise = np.random.default_rng(seed).standard_normal(self.v.shape)
        return Field(self.x, self.t, self.v + share * self.v.std() * noise)


def load(path: Path) -> Field:
    """The data set of Rudy and others as MATLAB wrote it."""
    if not path.is_file():
        raise ValueError(f"data must be a .mat file, got {path}")
    try:
        content = loadmat(path)
    except (OSError, ValueError, TypeError, NotImplementedError, zlib.error) as error:
        raise ValueError(f"data {path} is not a complete .mat file: {error}") from None
    missing = {"x", "tt", "uu"} - content.keys()
    if missing:
        raise ValueError(f"data {path} must hold x, tt and uu, got no {', '.join(sorted(missing))}")
    x, t, v = content["x"].ravel(), content["tt"].ravel(), content["uu"]
    if any(array.dtype.kind not in "fiu" for array in (x, t, v)):
        raise ValueError(f"data {path} must hold real numbers")
    if v.shape != (len(x), len(t)) or len(x) < _LEAST or len(t) < _LEAST:
        raise ValueError(
            f"data {path}: uu must be (x, tt), at least {_LEAST} of each, got {v.shape} with "
            f"{len(x)} and {len(t)}"
        )
    if not all(np.isfinite(array).all() for array in (x, t, v)):
        raise ValueError(f"data {path} must be finite")
    return Field(x, t, v)


def solve(
    length: float = 32 * np.pi, n: int = 1024, end: float = 100.0, frames: int = 251,
    steps: int = 8,
) -> Field:  # fmt: skip
    """Fourier modes, exponential time differencing of fourth order: the linear part is exact, the
    coefficients of the other are means over a circle in the complex plane (Kassam and Trefethen,
    2005)."""
    x = length * np.arange(1, n + 1) / n
    wave = 2 * np.pi / length * np.fft.rfftfreq(n, 1 / n)
    linear = wave**2 - wave**4
    h = end / (frames - 1) / steps
    circle = h * linear[:, None] + np.exp(1j * np.pi * (np.arange(1, 33) - 0.5) / 32)
    e1, e2 = np.exp(h * linear), np.exp(h * linear / 2)
    q = h * ((np.exp(circle / 2) - 1) / circle).mean(1).real
    power = np.exp(circle)
    f1 = h * ((-4 - circle + power * (4 - 3 * circle + circle**2)) / circle**3).mean(1).real
    f2 = h * ((2 + circle + power * (circle - 2)) / circle**3).mean(1).real
    f3 = h * ((-4 - 3 * circle - circle**2 + power * (4 - circle)) / circle**3).mean(1).real
    factor = -0.5j * wave
    factor[2 * n // 3 // 2 :] = 0  # no aliasing of the square

    def nonlinear(v: Array) -> Array:
        return factor * np.fft.rfft(np.fft.irfft(v, n) ** 2)

    angle = 2 * np.pi * x / length
    v = np.fft.rfft(np.cos(angle) * (1 + np.sin(angle)))
    found = [np.fft.irfft(v, n)]
    for _ in range(frames - 1):
        for _ in range(steps):
            nv = nonlinear(v)
            a = e2 * v + q * nv
            na = nonlinear(a)
            b = e2 * v + q * na
            nb = nonlinear(b)
            c = e2 * a + q * (2 * nb - nv)
            v = e1 * v + f1 * nv + 2 * f2 * (na + nb) + f3 * nonlinear(c)
        found.append(np.fft.irfft(v, n))
    return Field(x, np.linspace(0, end, frames), np.stack(found, 1))


@dataclass(frozen=True)
class Regression:
    """The terms (rows, 14) with their names, and v_t (rows,)."""

    terms: Array
    names: list[str]
    v_t: Array


def pointwise(field: Field, periodic: bool = False) -> Regression:
    """{v, v²} times derivatives up to the fourth, by finite differences of second order."""
    library = pysindy.PDELibrary(
        function_library=pysindy.PolynomialLibrary(degree=2, include_bias=False),
        derivative_order=4,
        spatial_grid=field.x,
        diff_kwargs={"is_uniform": True, "periodic": periodic},
    )
    terms = library.fit_transform(field.v[..., None])
    v_t = pysindy.FiniteDifference(axis=1)(field.v[..., None], field.t)
    return _regression(library, terms, v_t)


def weak(field: Field, domains: int = 400, seed: int = 0) -> Regression:
    """The same terms integrated against bumps over random patches: noise is averaged and no
    derivative of it is taken."""
    grid = np.stack(np.meshgrid(field.x, field.t, indexing="ij"), -1)
    state = np.random.get_state()
    np.random.seed(seed)  # PySINDy draws the patches from the global state
    try:
        library = pysindy.WeakPDELibrary(
            function_library=pysindy.PolynomialLibrary(degree=2, include_bias=False),
            derivative_order=4,
            spatiotemporal_grid=grid,
            K=domains,
            H_xt=[field.x[-1] / 20, field.t[-1] / 20],
            diff_kwargs={"is_uniform": True},
        )
        terms = library.fit_transform(field.v[..., None])
        v_t = library.convert_u_dot_integral(field.v[..., None])
    finally:
        np.random.set_state(state)
    return _regression(library, terms, v_t)


def _regression(library: Any, terms: Array, v_t: Array) -> Regression:
    names = [NAMES[name] for name in library.get_feature_names()]
    flat = np.asarray(terms).reshape(-1, len(names))
    return Regression(flat, names, np.asarray(v_t).reshape(-1))
