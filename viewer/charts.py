"""Charts as SVG, made on the server: text in the page, with a title that says in words what they show.

Colours come from the style sheet, by class. Nothing in a chart depends on a script.
"""

from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup, escape

from warehouse.queries.calls import GainBin

_BAR, _GAP, _HEIGHT, _FOOT = 22, 4, 64, 34  # pixels
_LINE, _LABEL, _LONGEST = 20, 72, 216  # of a funnel: height of a line, width of its label, length of the longest bar


def funnel_chart(tool: str, stages: Mapping[str, int], colour: str) -> Markup:
    most = max(stages.values(), default=0) or 1
    parts = []
    for number, (stage, rows) in enumerate(stages.items()):
        y, length = number * _LINE, round(_LONGEST * rows / most, 1)
        parts.append(
            f'<text class="stage" x="{_LABEL}" y="{y + 14}">{escape(stage)}</text>'
            f'<rect class="bar {escape(colour)}" x="{_LABEL + 8}" y="{y + 2}" width="{length}" height="{_LINE - 4}"/>'
            f'<text x="{_LABEL + 12 + length:g}" y="{y + 14}">{rows:,}</text>'
        )
    title = f"{tool}: " + ", ".join(f"{stage} {rows:,}" for stage, rows in stages.items())
    return _chart(title, 0, 0, _LABEL + _LONGEST + 84, len(stages) * _LINE, parts)


def gain_chart(tool: str, bins: Sequence[GainBin], thresholds: Mapping[str, float], colour: str) -> Markup:
    """Return a histogram of a tool's gains, with thresholds (nats by name) as lines, but for those where "now" stands.

    The first and the last bin are open, with others between them.
    """
    most = max(one.calls for one in bins) or 1
    width = len(bins) * (_BAR + _GAP)
    parts = []
    for number, one in enumerate(bins):
        height = round(_HEIGHT * one.calls / most, 1)
        x, y = number * (_BAR + _GAP), round(_HEIGHT - height, 1)
        parts.append(
            f'<rect class="bar {escape(colour)}" x="{x}" y="{y}" width="{_BAR}" height="{height}">'
            f"<title>{escape(one.label)} nats: {one.calls:,} calls</title></rect>"
        )
        if one.low is not None and one.low == int(one.low):
            parts.append(f'<text class="tick" x="{x - _GAP / 2:g}" y="{_HEIGHT + 14}">{one.low:g}</text>')
    parts.append(f'<text class="tick" x="{width - _GAP - _BAR / 2:g}" y="{_HEIGHT + 14}">…</text>')
    lines = {name: value for name, value in thresholds.items() if name == "now" or value != thresholds.get("now")}
    for name, threshold in lines.items():
        at = _place(bins, threshold)
        parts.append(
            f'<line class="threshold {escape(name)}" x1="{at}" x2="{at}" y1="0" y2="{_HEIGHT}"/>'
            f'<text class="threshold {escape(name)}" x="{at}" y="{_HEIGHT + 28}">{escape(name)}</text>'
        )
    said = ", ".join(f"threshold {name} {threshold:g}" for name, threshold in lines.items())
    total = sum(one.calls for one in bins)
    return _chart(
        f"Gains of {total:,} scored calls of {tool}, in nats; {said}", -4, -1, width + 8, _HEIGHT + _FOOT, parts
    )


def _chart(title: str, left: int, top: int, width: int, height: int, parts: Iterable[str]) -> Markup:
    return Markup(
        f'<svg class="chart" role="img" viewBox="{left} {top} {width} {height}" width="{width}" height="{height}" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )


def _place(bins: Sequence[GainBin], gain: float) -> float:
    inner = [(one.low, one.high) for one in bins if one.low is not None and one.high is not None]
    [(low, high), *_] = inner
    at = (gain - low) / (high - low)
    return round((1 + min(max(at, -0.5), len(inner) + 0.5)) * (_BAR + _GAP) - _GAP / 2, 1)
