"""Draw the one picture of the documentation: `python docs/picture.py` writes images/house.svg beside this file.

Plain SVG made of boxes and arrows, so that the site needs no script to show it. It knows no figures.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

PICTURE = Path(__file__).parent / "images" / "house.svg"
_WIDTH, _HEIGHT = 900, 420
_BOX_W, _BOX_H = 124, 62
_KINDS = {"data": ("#e3f2fd", "#1565c0"), "work": ("#f1f8e9", "#558b2f"), "place": ("#fff3e0", "#ef6c00")}

# Boxes by name: left, top, kind, title, what it does.
_BOXES: dict[str, tuple[int, int, str, str, str]] = {
    "corpus": (20, 60, "data", "corpus C", "your texts"),
    "prefilter": (164, 60, "work", "prefilter", "worth a try?"),
    "sample": (308, 60, "work", "sample", "the model draws"),
    "execute": (452, 60, "work", "execute", "the tool answers"),
    "score": (596, 60, "work", "score", "does it help?"),
    "assemble": (740, 60, "work", "assemble", "keep what helps"),
    "cstar": (740, 180, "data", "C*", "texts with calls"),
    "finetune": (596, 180, "work", "finetune", "learn when to call"),
    "model": (452, 180, "data", "checkpoint", "the model"),
    "serve": (308, 180, "work", "generate", "write with tools"),
    "evaluate": (164, 180, "work", "evaluate", "with and without"),
    "files": (20, 330, "place", "Parquet files", "and commits: truth"),
    "warehouse": (164, 330, "place", "the snapshot", "ask it in SQL"),
    "prefect": (308, 330, "place", "Prefect", "forms, progress"),
    "mlflow": (452, 330, "place", "MLflow", "compare runs"),
}
_ARROWS = (
    *(("corpus", "prefilter"), ("prefilter", "sample"), ("sample", "execute"), ("execute", "score")),
    *(("score", "assemble"), ("assemble", "cstar"), ("cstar", "finetune"), ("finetune", "model")),
    *(("model", "serve"), ("files", "warehouse")),
)


def picture() -> str:
    """Return the SVG."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif">',
        "<title>From a corpus to a model that calls tools, and where a person looks</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>',
        _heading(20, 40, "The flow build-dataset: per tool and shard, every call judged by the model itself"),
        _heading(20, 172, "The flows finetune and evaluate"),
        _heading(20, 300, "Every step leaves its rows, its counts and its reasons"),
    ]
    lines += [_arrow(one, other) for one, other in _ARROWS]
    lines.append(_line(452, 242, 226, 242, 20))  # the checkpoint is evaluated too
    lines += [_box(*box) for box in _BOXES.values()]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _heading(x: int, y: int, text: str) -> str:
    return f'<text x="{x}" y="{y}" font-size="14" fill="#555">{escape(text)}</text>'


def _box(left: int, top: int, kind: str, title: str, about: str) -> str:
    fill, edge = _KINDS[kind]
    middle, bold = left + _BOX_W // 2, 'font-size="13" font-weight="bold"'
    return (
        f'<rect x="{left}" y="{top}" width="{_BOX_W}" height="{_BOX_H}" rx="8" fill="{fill}" stroke="{edge}"/>'
        f'<text x="{middle}" y="{top + 27}" {bold} text-anchor="middle">{escape(title)}</text>'
        f'<text x="{middle}" y="{top + 46}" font-size="11" text-anchor="middle">{escape(about)}</text>'
    )


def _arrow(one: str, other: str) -> str:
    """A straight arrow from box to box: along a row, or down a column."""
    (x1, y1, *_), (x2, y2, *_) = _BOXES[one], _BOXES[other]
    half_w, half_h = _BOX_W // 2, _BOX_H // 2
    if x1 == x2:
        return _path(f"M{x1 + half_w} {y1 + _BOX_H} V{y2 - 1}")
    start, end = (x1 + _BOX_W, x2 - 1) if x1 < x2 else (x1, x2 + _BOX_W + 1)
    return _path(f"M{start} {y1 + half_h} H{end}")


def _line(x1: int, y1: int, x2: int, y2: int, below: int) -> str:
    """An arrow that leaves a box downwards and enters another from below."""
    return _path(f"M{x1 + _BOX_W // 2} {y1} V{y1 + below} H{x2} V{y2 + 1}")


def _path(way: str) -> str:
    return f'<path d="{way}" fill="none" stroke="#555" stroke-width="1.5" marker-end="url(#tip)"/>'


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
