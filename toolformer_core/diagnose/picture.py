"""Draws the distributions of L- - L+ of one tool: of right, wrong and unrelated calls, with tau_f marked.

The picture is a PNG made by matplotlib (without pyplot or a window), or lines of text for a terminal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolformer_core.diagnose.observe import KINDS, Observed

_COLOURS = {"gold": "#2a7f3f", "wrong": "#c0392b", "unrelated": "#8a8a8a"}
_LABELS = {"gold": "right response", "wrong": "wrong response", "unrelated": "unrelated call"}
_BLOCKS = " ▁▂▃▄▅▆▇█"
_LOWEST, _HIGHEST = -4.0, 8.0  # nats; values outside are counted in the outermost cells
_CELLS = 48  # of a quarter nat each


def gains_of(observed: Observed) -> dict[str, list[float]]:
    """Return L- - L+ of a tool's trials by kind, in nats, without trials that could not be scored."""
    gains: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for trial in observed.trials:
        if not math.isnan(trial.scored.gain):
            gains[trial.kind].append(trial.scored.gain)
    return gains


def draw(tool: str, model: str, gains: Mapping[str, Sequence[float]], tau_f: float, path: Path) -> None:
    """Write a tool's picture.

    Args:
        tool: for the title.
        model: for the title.
        gains: see `gains_of`.
        tau_f: the threshold to mark, in nats.
        path: the PNG file to write.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    cells = [_LOWEST + i * (_HIGHEST - _LOWEST) / _CELLS for i in range(_CELLS + 1)]
    for kind in KINDS:
        values = [min(max(gain, _LOWEST), _HIGHEST - 1e-6) for gain in gains[kind]]
        axes.hist(values, bins=cells, alpha=0.55, color=_COLOURS[kind], label=f"{_LABELS[kind]} ({len(values)})")
    axes.axvline(tau_f, color="black", linewidth=1.2, linestyle="--", label=f"tau_f = {tau_f:g}")
    axes.set_title(f"{tool}: what a response is worth to {model}")
    axes.set_xlabel("L- - L+, nats")
    axes.set_ylabel("calls")
    axes.legend(fontsize="small", loc="upper right")
    axes.grid(alpha=0.3)
    figure.savefig(path)


def gain_lines(gains: Mapping[str, Sequence[float]], tau_f: float) -> list[str]:
    """Return the same as text: one line of blocks per kind, and a line that marks zero and tau_f."""
    out = []
    for kind in KINDS:
        counts = [0] * _CELLS
        for gain in gains[kind]:
            counts[_cell(gain)] += 1
        most = max(counts) or 1
        bar = "".join(_BLOCKS[math.ceil(count / most * (len(_BLOCKS) - 1))] for count in counts)
        out.append(f"{_LABELS[kind]:<15}{bar} {len(gains[kind]):>4}")
    scale = [" "] * _CELLS
    scale[_cell(0.0)] = "0"
    scale[_cell(tau_f)] = "|"
    return [*out, f"{'L- - L+, nats':<15}{''.join(scale)}  from {_LOWEST:g} to {_HIGHEST:g}, | is tau_f = {tau_f:g}"]


def _cell(gain: float) -> int:
    return min(max(math.floor((gain - _LOWEST) / (_HIGHEST - _LOWEST) * _CELLS), 0), _CELLS - 1)
