"""Figures for a run: curves, bars, histograms and matrices, drawn without a window.

It knows no MLflow and uses no global state of matplotlib (no pyplot), so several threads may draw at once.
"""

import math
from collections.abc import Mapping, Sequence

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

Point = tuple[int, float]  # step, value
Bar = tuple[float, float, float]  # value, and its interval's ends
Bin = tuple[str, int]  # what is counted, how often


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def curves(
    title: str, y_label: str, series: Mapping[str, Sequence[Point]], *, x_label: str = "step", logarithmic: bool = False
) -> Figure:
    """Draw (step, value) pairs by label as curves; values that are not finite (a diverged loss) are gaps."""
    figure, scale = _figure(7, 4.2), "log" if logarithmic else "linear"
    axes = figure.add_subplot(title=title, xlabel=x_label, ylabel=y_label, xscale=scale)
    for label, points in series.items():
        values = [value if math.isfinite(value) else math.nan for _, value in points]
        marker = "o" if len(points) <= 25 else ""  # a lone point has no line to be seen by
        axes.plot([step for step, _ in points], values, marker=marker, markersize=4, linewidth=1.4, label=label)
    if not logarithmic:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    if series:
        axes.legend(fontsize="small")
    return figure


def bars(title: str, x_label: str, values: Mapping[str, Bar]) -> Figure:
    """Draw one bar per label with its interval, from the top down; a value that is not finite has none."""
    figure = _figure(7, 1.4 + 0.3 * max(1, len(values)))
    axes = figure.add_subplot(title=title, xlabel=x_label)
    known = {label: bar for label, bar in values.items() if all(map(math.isfinite, bar))}
    widths = [value for value, _, _ in known.values()]
    below = [max(0.0, value - low) for value, low, _ in known.values()]
    above = [max(0.0, high - value) for value, _, high in known.values()]
    axes.barh(list(known), widths, xerr=[below, above], capsize=4, color="#4c78a8")
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    return figure


def histograms(title: str, x_label: str, tools: Mapping[str, Sequence[Bin]], marks: Mapping[str, int]) -> Figure:
    """Draw histograms by label, one below the other, over the same bins; from its mark on a label's calls are kept."""
    figure = _figure(7, 0.8 + 1.5 * max(1, len(tools)))
    figure.suptitle(title)
    for row, (label, bins) in enumerate(tools.items()):
        axes = figure.add_subplot(len(tools), 1, row + 1, ylabel="calls")
        kept = marks.get(label, len(bins))
        colours = ["#4c78a8" if at >= kept else "#bab0ac" for at in range(len(bins))]
        axes.bar([name for name, _ in bins], [count for _, count in bins], color=colours, width=0.95)
        axes.set_title(label, fontsize="medium", loc="left")
        axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.grid(axis="y", alpha=0.3)
        axes.set_xticks(range(len(bins)), [name for name, _ in bins], rotation=40, ha="right")
        axes.tick_params(axis="x", labelbottom=row == len(tools) - 1)
    if figure.axes:
        figure.axes[-1].set_xlabel(x_label)
    return figure


def matrix(title: str, x_label: str, rows: Mapping[str, Mapping[str, int]]) -> Figure:
    """Draw counts as a matrix: a cell is as dark as its share of its row, and shows the count unless that is 0."""
    columns = list(dict.fromkeys(column for counts in rows.values() for column in counts))
    width = min(40.0, 2.5 + 0.55 * max(1, len(columns)))
    figure = _figure(max(7.0, width), 1.8 + 0.4 * max(1, len(rows)))
    axes = figure.add_subplot(title=title, xlabel=x_label)
    shares = [[counts.get(column, 0) / max(1, sum(counts.values())) for column in columns] for counts in rows.values()]
    if shares and columns:
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for y, counts in enumerate(rows.values()):
        for x, column in enumerate(columns):
            if n := counts.get(column, 0):
                colour = "white" if shares[y][x] > 0.5 else "black"
                axes.text(x, y, f"{n:,}", ha="center", va="center", fontsize="small", color=colour)
    axes.set_xticks(range(len(columns)), columns, rotation=45, ha="right", fontsize="small")
    axes.set_yticks(range(len(rows)), list(rows), fontsize="small")
    return figure
