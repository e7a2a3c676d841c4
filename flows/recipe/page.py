"""The page of a recipe's results, in Markdown and in HTML: a section a step, with its table and its picture.

The HTML is one file that loads nothing. No time and no run's id stands in it, so the same results give the same page.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from flows.build_dataset.tracking import gains_figure
from flows.build_dataset.versions import examples_table
from flows.evaluate.metrics import EvaluateResult, table_of
from flows.evaluate.tracking import accuracy_figure
from flows.finetune.fit_trigger import TriggerResult, fits_table
from flows.finetune.flow import FinetuneResult, training_rows
from flows.ground.metrics import GroundResult
from flows.ground.tables import summary
from flows.report.tables import markdown_table
from flows.runtime.artifacts import png
from warehouse.commits import Dataset
from warehouse.files.base import put_local
from warehouse.queries.calls import GainBin

_STYLE = """body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse } th, td { padding: .2rem .8rem; border-bottom: 1px solid #8888; text-align: right }
th:first-child, td:first-child { text-align: left } img { max-width: 100%; background: #fff }"""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    text: str  # Markdown
    figure: Any = None  # matplotlib's; None: the step has no picture
    caption: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)  # for MLflow


def build_section(step: str, dataset: Dataset, gains: Sequence[GainBin]) -> Section:
    """Return the section of a build: examples by tool and threshold, and the gains of the scored calls."""
    text = f"{sum(file.rows for file in dataset.files):,} texts with calls. tau_f and thresholds are in nats.\n\n"
    text += examples_table(dataset)
    title = f"{step}: {dataset.name}@{dataset.version}"
    figure = gains_figure(gains, dataset.thresholds) if gains else None
    return Section(
        title, text, figure, "Gains of the scored calls", {f"examples/{t}": n for t, n in dataset.counts.items()}
    )


def section_of(step: str, result: Any) -> Section:
    if isinstance(result, FinetuneResult):
        metrics = {} if result.best_perplexity is None else {f"perplexity/{step}": result.best_perplexity}
        return Section(step, markdown_table(["", ""], training_rows(result)[:2]), metrics=metrics)
    if isinstance(result, EvaluateResult):
        table, figure = table_of(result), accuracy_figure(result.title, result.arms) if result.arms else None
        metrics = {f"accuracy/{step}/{one.arm.replace('+', '-')}/{one.k}": one.accuracy for one in result.arms}
        return Section(f"{step}: {table.title}", table.markdown(), figure, "Accuracy by arm, 95 % intervals", metrics)
    if isinstance(result, GroundResult):
        return Section(step, summary(result, costs=False).replace("## ", "### "))
    if isinstance(result, TriggerResult):
        return Section(step, fits_table(result.fitted).markdown())
    files = ", ".join(f"`{path.name}`" for path in result.files)
    return Section(
        step, markdown_table(["dataset", "examples", "files"], [[result.dataset, f"{result.examples:,}", files]])
    )


def write_page(folder: Path, name: str, sections: Sequence[Section | None]) -> tuple[Path, Path]:
    """Write `results.md`, its pictures and `results.html`; return the two pages. A step without section is not done."""
    from markdown_it import MarkdownIt

    folder.mkdir(parents=True, exist_ok=True)
    lines, pictures = [f"# {name}"], {}
    if (done := sum(section is not None for section in sections)) < len(sections):
        lines.append(f"{done} of {len(sections)} steps are done.")
    for number, section in enumerate(sections, 1):
        if section is None:
            continue
        lines.append(f"## {section.title}\n\n{section.text}")
        if section.figure is not None:
            pictures[f"{number}.png"] = png(section.figure)
            put_local(folder / f"{number}.png", pictures[f"{number}.png"])
            lines.append(f"![{section.caption}]({number}.png)")
    page, site = folder / "results.md", folder / "results.html"
    put_local(page, (text := "\n\n".join(lines) + "\n").encode())
    html = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    for file, picture in pictures.items():
        html = html.replace(f'src="{file}"', f'src="data:image/png;base64,{base64.b64encode(picture).decode()}"')
    head = f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{escape(name)}</title>'
    put_local(site, f"{head}\n<style>\n{_STYLE}\n</style>\n{html}</html>\n".encode())
    return page, site
