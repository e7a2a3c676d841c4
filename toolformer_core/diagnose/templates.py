"""Compares annotation prompts in plain text and in a chat: what each makes a model write, and what is kept.

Each is measured like any prompt (see `run.measure`), on the same documents and with the same settings. This module
judges nothing: which prompt is best depends on the model and the texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from toolformer_core.annotate.in_memory import OnProgress
from toolformer_core.diagnose.figures import Figures, threshold_name
from toolformer_core.diagnose.gold import GoldTexts
from toolformer_core.diagnose.run import DiagnoseConfig, measure
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.tools.base import Tool


@dataclass(frozen=True, slots=True)
class TemplateFigures:
    """What one prompt of a tool gives. Shares are None where there is nothing to share."""

    tool: str
    chat_template: str  # by which the prompt was written; "none": plain text
    draws: int  # at gold positions
    well_formed: float | None  # share of these draws
    equals_gold: float | None  # share of these draws that have the gold input
    executes: float | None  # share of the distinct inputs drawn anywhere that the tool answers
    kept: int  # calls, at the tool's tau_f
    right: int  # of these: a gold call at its position
    precision: float | None  # right / kept
    recall: float | None  # share of gold calls at whose position a call as good is kept


def measure_templates(
    lm: TransformersLM,
    tools: Mapping[str, Tool],
    texts: GoldTexts,
    config: DiagnoseConfig,
    templates: Sequence[str],
    on_progress: OnProgress | None = None,
) -> Iterator[TemplateFigures]:
    """Yield the figures of each tool's prompt, by tool and template.

    Args:
        lm: the model.
        tools: by key.
        texts: with gold calls.
        config: how much to measure, and with which settings; its own template is not used.
        templates: chat templates, by each of which every prompt is written; see `prompt_in_chat`.
        on_progress: as for `measure`.

    Raises:
        UsageError: see `measure`.
    """
    for key, tool in tools.items():
        for template in templates:
            measured = replace(config, chat_template=template)
            for one in measure(lm, {key: tool}, texts, measured, on_progress):
                yield _figures(one.figures, measured)


def _figures(figures: Figures, config: DiagnoseConfig) -> TemplateFigures:
    kept = figures.kept[threshold_name(figures.filter.tau_f)]
    imitation = figures.imitation
    return TemplateFigures(
        tool=figures.tool,
        chat_template=config.chat_template,
        draws=imitation.at_gold,
        well_formed=imitation.well_formed,
        equals_gold=imitation.right,
        executes=figures.use.drawn_answered,
        kept=kept.calls,
        right=kept.right,
        precision=kept.precision,
        recall=kept.recall,
    )
