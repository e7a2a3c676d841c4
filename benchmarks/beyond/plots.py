"""The pictures of docs/beyond.md, as SVG: promised against true rates, and accuracy against calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.beyond.calibration import PROMISES
from benchmarks.beyond.pooled import Share

__all__ = ["Curve", "plot_calibration", "plot_curves"]

_CLIP = re.compile(r'clipPath id="(\w+)"')

Curve = list[tuple[float, float, str]]  # x, y, what is written beside the point


def plot_calibration(path: Path, rates: Mapping[str, Mapping[str, Mapping[float, Share | None]]]) -> None:
    """Draw the true rate over the promised one, a panel for each kind of frames and a line for each tool.

    Args:
        path: of the picture.
        rates: frames -> tool -> promised rate -> true rate.
    """
    figure = Figure(figsize=(5 * len(rates), 4))
    axes = figure.subplots(1, len(rates), sharey=True, squeeze=False)
    for panel, (frames, tools) in zip(axes[0], rates.items(), strict=True):
        panel.plot(PROMISES, PROMISES, color="grey", linestyle="--", label="as promised")
        for i, (tool, by_promise) in enumerate(tools.items()):
            points = [(promise * 1.04 ** (i - 2), share) for promise, share in by_promise.items() if share]
            x, y = [p for p, _ in points], [share.value for _, share in points]
            errors = [[s.value - s.low for _, s in points], [s.high - s.value for _, s in points]]
            panel.errorbar(x, y, yerr=errors, marker="o", markersize=4, linewidth=1, capsize=2, label=tool)
        panel.set(xscale="log", title=f"{frames} frames", xlabel="promised rate")
        panel.set_xticks(PROMISES, [str(p) for p in PROMISES])
        panel.minorticks_off()
    axes[0][0].set_ylabel("wrong calls among the kept")
    axes[0][0].legend()
    _save(figure, path)


def plot_curves(path: Path, curves: Mapping[str, Curve], x: str, y: str) -> None:
    """Draw curves of labelled points."""
    figure = Figure(figsize=(7, 4))
    panel = figure.subplots()
    for name, points in curves.items():
        panel.plot([p[0] for p in points], [p[1] for p in points], marker="o", markersize=4, linewidth=1, label=name)
        for at_x, at_y, text in points:
            panel.annotate(text, (at_x, at_y), textcoords="offset points", xytext=(4, 4), fontsize=7)
    panel.set(xlabel=x, ylabel=y)
    panel.legend()
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "beyond"}):  # the same figures give the same bytes
        figure.savefig(path, metadata={"Date": None})
    text = path.read_text(encoding="utf-8")
    for number, name in enumerate(dict.fromkeys(_CLIP.findall(text))):  # made of addresses in memory
        text = text.replace(name, f"clip{number}")
    path.write_text(text, encoding="utf-8")
