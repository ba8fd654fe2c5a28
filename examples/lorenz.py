"""The Lorenz equations from noisy data: exactly 2, 3 and 2 of 10 terms, by PySINDy and ksubset.

python examples/lorenz.py [--output outputs/lorenz.png]
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pysindy
from figures import BLUE, GREY, save
from scipy.integrate import solve_ivp

from ksubset.pysindy import KSubsetOptimizer


def lorenz(_: float, u: np.ndarray) -> list[float]:
    """The truth."""
    return [10 * (u[1] - u[0]), u[0] * (28 - u[2]) - u[1], u[0] * u[1] - 8 / 3 * u[2]]


t = np.arange(0, 15, 0.005)
u = solve_ivp(lorenz, (0, 15), [-8, 8, 27], t_eval=t, rtol=1e-10, atol=1e-10).y.T
noisy = u + 0.01 * u.std() * np.random.default_rng(0).standard_normal(u.shape)
optimizer = KSubsetOptimizer(k=[2, 3, 2], random_state=0)
model = pysindy.SINDy(
    optimizer=optimizer,
    feature_library=pysindy.PolynomialLibrary(degree=2),
    differentiation_method=pysindy.SmoothedFiniteDifference(
        smoother_kws={"window_length": 21, "polyorder": 3}
    ),
).fit(noisy, t=t, feature_names=["x", "y", "z"])
model.print()

figure, (left, right) = plt.subplots(
    1, 2, figsize=(11, 4), width_ratios=(1, 1.4), layout="constrained"
)
left.plot(noisy[:, 0], noisy[:, 2], ".", color=GREY, markersize=1, label="data")
left.plot(u[:, 0], u[:, 2], color=BLUE, linewidth=0.6, label="without noise")
left.set(title="What was seen", xlabel="x", ylabel="z")
left.legend(frameon=False)
names = model.get_feature_names()
coefficients = model.coefficients()
right.imshow(coefficients != 0, cmap="Blues", vmin=0, vmax=2, aspect="auto")
for equation, term in zip(*coefficients.nonzero(), strict=True):
    value = coefficients[equation, term]
    right.text(term, equation, f"{value:.2f}", ha="center", va="center")
right.set(title="Terms found, with coefficients", xticks=range(len(names)), yticks=range(3))
right.set_xticklabels(names)
right.set_yticklabels(["dx/dt", "dy/dt", "dz/dt"])
save(figure, "lorenz")
