"""Labels of a picture's points: none on top of another, or of a point."""

from __future__ import annotations

import itertools

import matplotlib.pyplot as plt
from matplotlib.text import Annotation, Text

from experiments.synthetic import labels

POINTS = {f"method {i}": (0.1 * (i % 3), 0.06 * (i // 3)) for i in range(9)}


def test_labels_do_not_overlap() -> None:
    figure, panel = plt.subplots(figsize=(6, 4), layout="constrained")
    panel.set(xlim=(-0.2, 1), ylim=(-0.2, 1))
    labels.place(panel, POINTS, bold=["method 4"])
    found = [child for child in panel.get_children() if isinstance(child, Annotation)]
    assert {text.get_text() for text in found} == POINTS.keys()
    assert [t.get_text() for t in found if t.get_weight() == "bold"] == ["method 4"]
    figure.canvas.draw()
    boxes = [Text.get_window_extent(text) for text in found]  # of the words alone
    places = [panel.transData.transform(point) for point in POINTS.values()]
    for a, b in itertools.combinations(boxes, 2):
        assert not a.overlaps(b)
    assert not any(box.contains(*place) for box in boxes for place in places)
    assert all(panel.get_window_extent().fully_containsx(box.x1) for box in boxes)
    plt.close(figure)


def test_points_on_top_of_each_other_share_a_label() -> None:
    figure, panel = plt.subplots(figsize=(6, 4))
    points = {"swap": (0.5, 0.5), "ReinMax": (0.501, 0.5), "SIMPLE": (0.9, 0.1)}
    assert labels.grouped(panel, points) == {"swap; ReinMax": (0.5, 0.5), "SIMPLE": (0.9, 0.1)}
    plt.close(figure)
