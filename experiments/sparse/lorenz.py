"""The Lorenz system, its noisy trajectories and a library of cubic terms."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pysindy
from scipy.integrate import solve_ivp

Array = npt.NDArray[Any]
TRUTH = (("x0", "x1"), ("x0", "x1", "x0 x2"), ("x2", "x0 x1"))


def trajectory(end: float = 10.0, step: float = 0.005) -> tuple[Array, Array]:
    """Times (m,) and states (m, 3)."""
    t = np.arange(0, end, step)

    def flow(_: float, u: Array) -> list[float]:
        return [10 * (u[1] - u[0]), u[0] * (28 - u[2]) - u[1], u[0] * u[1] - 8 / 3 * u[2]]

    found = solve_ivp(flow, (0, end), [-8.0, 8.0, 27.0], t_eval=t, rtol=1e-10, atol=1e-10)
    return t, found.y.T


def regression(noise: float, seed: int) -> tuple[Array, list[str], Array]:
    """Terms (m, 20), their names and derivatives (m, 3), of states with noise of this share of
    each one's deviation, smoothed (Savitzky and Golay) before anything is computed."""
    t, u = trajectory()
    random = np.random.default_rng(seed)
    seen = u + noise * u.std(0) * random.standard_normal(u.shape)
    smooth = pysindy.SmoothedFiniteDifference(
        smoother_kws={"window_length": 41, "polyorder": 5}, save_smooth=True
    )
    slope = np.asarray(smooth(seen, t))
    library = pysindy.PolynomialLibrary(degree=3)
    terms = np.asarray(library.fit_transform(np.asarray(smooth.smoothed_x_)))
    inner = slice(25, -25)  # the smoother is one-sided at the ends
    return terms[inner], library.get_feature_names(), slope[inner]
