"""The page of a recipe's results, in Markdown and in HTML: a section a step, with its table and its picture.

The HTML is one file that loads nothing. No time and no run's id stands in it, so the same results give the same page.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from flows.artifacts import markdown_table
from flows.build_dataset.tracking import gains_figure
from flows.evaluate.metrics import EvaluateResult
from flows.evaluate.tracking import accuracy_figure
from flows.export.run import ExportResult
from flows.finetune.fit_trigger import TriggerResult, rows_of_fits
from flows.finetune.flow import FinetuneResult
from flows.ground.metrics import GroundResult
from flows.ground.summary import summary
from warehouse.commits import Dataset
from warehouse.files.base import put_local
from warehouse.queries import GainBin

__all__ = ["Section", "build_section", "section_of", "write_page"]

_STYLE = """body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse } th, td { padding: .2rem .8rem; border-bottom: 1px solid #8888; text-align: right }
th:first-child, td:first-child { text-align: left } img { max-width: 100%; background: #fff }"""


@dataclass(frozen=True, slots=True)
class Section:
    """What the page says of one step."""

    title: str
    text: str  # Markdown
    figure: Any = None  # matplotlib's; None: the step has no picture
    caption: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)  # for MLflow


def build_section(step: str, dataset: Dataset, gains: Sequence[GainBin]) -> Section:
    """Return the section of a build: examples by tool and threshold, and the gains of the scored calls.

    Args:
        gains: of the build's calls; none: they are not known any more.
    """
    taus = sorted({tau for _, tau, _ in dataset.yields})
    counts = {(tool, tau): n for tool, tau, n in dataset.yields}
    rows = [
        [tool, f"{tau_f:g}", f"{dataset.counts.get(tool, 0):,}", *(f"{counts.get((tool, tau), 0):,}" for tau in taus)]
        for tool, tau_f in dataset.thresholds.items()
    ]
    text = f"{sum(file.rows for file in dataset.files):,} texts with calls. tau_f and thresholds are in nats.\n\n"
    text += markdown_table(["tool", "tau_f", "examples", *(f"at {tau:g}" for tau in taus)], rows)
    title = f"{step}: {dataset.name}@{dataset.version}"
    figure = gains_figure(gains, dataset.thresholds) if gains else None
    return Section(
        title, text, figure, "Gains of the scored calls", {f"examples/{t}": n for t, n in dataset.counts.items()}
    )


def section_of(step: str, result: Any) -> Section:
    """Return the section of a step that is no build."""
    if isinstance(result, FinetuneResult):
        return _training(step, result)
    if isinstance(result, EvaluateResult):
        return _evaluation(step, result)
    if isinstance(result, GroundResult):
        return Section(step, summary(result, costs=False).replace("## ", "### "))
    if isinstance(result, TriggerResult):
        return Section(step, _thresholds(rows_of_fits(result.fitted)))
    return _export(step, result)


def _thresholds(fits: Sequence[Mapping[str, Any]]) -> str:
    names = ("tool", "theta", "calls", "opened", "kept", "needless", "needless_left")
    rows = [
        [f"{v:.3g}" if isinstance(v := fit[name], float) else str(v if v is not None else "-") for name in names]
        for fit in fits
    ]
    return markdown_table([name.replace("_", " ") for name in names], rows)


def _export(step: str, result: ExportResult) -> Section:
    files = ", ".join(f"`{path.name}`" for path in result.files)
    return Section(
        step, markdown_table(["dataset", "examples", "files"], [[result.dataset, f"{result.examples:,}", files]])
    )


def _training(step: str, result: FinetuneResult) -> Section:
    before, after = ("-" if p is None else f"{p:.3f}" for p in (result.base_perplexity, result.best_perplexity))
    row = [result.arm, result.dataset, f"{result.steps:,}", before, after]
    head = ["arm", "dataset", "steps", "perplexity of held-out texts before", "after"]
    metrics = {} if result.best_perplexity is None else {f"perplexity/{step}": result.best_perplexity}
    return Section(step, markdown_table(head, [row]), metrics=metrics)


def _evaluation(step: str, result: EvaluateResult) -> Section:
    title = f"{step}: {result.title} {result.source}".strip()
    if result.perplexities:
        rows = [[one.arm, f"{one.texts:,}", f"{one.tokens:,}", f"{one.perplexity:.3f}"] for one in result.perplexities]
        return Section(title, markdown_table(["arm, tools off", "texts", "tokens", "perplexity"], rows))
    rows = [
        [one.arm, str(one.k) if one.k else "off", f"{one.right:,} of {one.items:,}", f"{100 * one.accuracy:.1f}",
         f"{100 * one.low:.1f} to {100 * one.high:.1f}", f"{100 * one.call_rate:.1f}"]
        for one in result.arms
    ]  # fmt: skip
    text = markdown_table(["arm", "k", "right", "%", "95 % interval", "items with a call, %"], rows)
    text += _against_random_operands(result)
    metrics = {f"accuracy/{step}/{one.arm.replace('+', '-')}/{one.k}": one.accuracy for one in result.arms}
    return Section(title, text, accuracy_figure(result.title, result.arms), "Accuracy by arm, 95 % intervals", metrics)


def _against_random_operands(result: EvaluateResult) -> str:
    """Return how the arms that call the calculator on word problems compare with random operands; "" without any."""
    rows = [
        [one.arm, str(one.k), f"{100 * one.accuracy:.1f}", f"{100 * one.operands.value:.1f}",
         f"{100 * one.operands.low:.1f} to {100 * one.operands.high:.1f}", f"{100 * (one.right_calls or 0):.1f}"]
        for one in result.arms
        if one.operands is not None
    ]  # fmt: skip
    names = ["arm", "k", "%", "random operands, %", "95 % interval", "calls that give the answer, %"]
    return f"\n\n{markdown_table(names, rows)}" if rows else ""


def write_page(folder: Path, name: str, sections: Sequence[Section]) -> tuple[Path, Path]:
    """Write `results.md`, its pictures and `results.html`; return the two pages.

    Args:
        folder: of the recipe's results.
        name: of the recipe.
        sections: in the order of the steps.
    """
    from markdown_it import MarkdownIt

    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"# {name}"]
    html = [f"<h1>{escape(name)}</h1>"]
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    for number, section in enumerate(sections, 1):
        text = f"## {section.title}\n\n{section.text}"
        lines.append(text)
        html.append(markdown.render(text))
        if section.figure is not None:
            picture = _png(section.figure)
            put_local(folder / f"{number}.png", picture)
            lines.append(f"![{section.caption}]({number}.png)")
            source = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
            html.append(f'<p><img alt="{escape(section.caption)}" src="{source}"></p>')
    page, site = folder / "results.md", folder / "results.html"
    put_local(page, ("\n\n".join(lines) + "\n").encode())
    head = f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(name)}</title>'
    put_local(site, f"{head}\n<style>\n{_STYLE}\n</style>\n{chr(10).join(html)}\n</html>\n".encode())
    return page, site


def _png(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()
