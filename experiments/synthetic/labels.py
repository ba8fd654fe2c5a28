"""Labels beside the points of a picture that do not overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.transforms import Bbox

Point = tuple[float, float]
# Directions to try, in this order, and distances in points.
_SIDES = ((1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1), (0, 1), (0, -1))
_DISTANCES = (8, 14, 22, 32)
_MARKER = 5  # half of its size, in points


def grouped(panel: Axes, points: Mapping[str, Point]) -> dict[str, Point]:
    """Labels of points that hide each other share a line."""
    groups: dict[Point, list[str]] = {}
    for label, point in points.items():
        x, y = panel.transData.transform(point)
        for other in groups:
            u, v = panel.transData.transform(other)
            if abs(x - u) + abs(y - v) < _pixels(panel, _MARKER):
                groups[other].append(label)
                break
        else:
            groups[point] = [label]
    return {"; ".join(labels): point for point, labels in groups.items()}


def place(panel: Axes, points: Mapping[str, Point], bold: Sequence[str], size: float = 9) -> None:
    """Write each label at the first place where nothing else is. Limits and scales must be set."""
    panel.figure.canvas.draw()  # places are known after the layout
    named = grouped(panel, points)
    half = _pixels(panel, _MARKER)
    taken = []
    for x, y in (panel.transData.transform(point) for point in points.values()):
        taken.append(Bbox.from_extents(x - half, y - half, x + half, y + half))
    for label, point in named.items():
        weight = "bold" if bold and set(label.split("; ")) & set(bold) else "normal"
        best: tuple[float, tuple[float, float], str, Bbox] | None = None
        for offset, side in _places():
            text = panel.annotate(
                label, point, offset, textcoords="offset points", fontsize=size, weight=weight,
                ha=side, va="center",
            )  # fmt: skip
            box = text.get_window_extent()
            text.remove()
            overlap = sum(_overlap(box, other) for other in taken)
            overlap += box.width * box.height - _overlap(box, panel.get_window_extent())
            if best is None or overlap < best[0]:
                best = overlap, offset, side, box
            if overlap == 0:
                break
        assert best is not None
        _, offset, side, box = best
        taken.append(box)
        far = max(map(abs, offset)) > _DISTANCES[0]
        panel.annotate(
            label, point, offset, textcoords="offset points", fontsize=size, weight=weight,
            ha=side, va="center",
            arrowprops={"arrowstyle": "-", "color": "#aaaaaa", "linewidth": 0.7} if far else None,
        )  # fmt: skip


def _places() -> list[tuple[tuple[float, float], str]]:
    sides = {1: "left", 0: "center", -1: "right"}
    return [
        ((across * far, up * (far + 2)), sides[across])
        for far in _DISTANCES
        for across, up in _SIDES
    ]


def _pixels(panel: Axes, points: float) -> float:
    return float(points * panel.figure.dpi / 72)


def _overlap(a: Bbox, b: Bbox) -> float:
    both = Bbox.intersection(a, b)
    return 0.0 if both is None else float(both.width * both.height)
