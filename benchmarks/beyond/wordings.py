"""Part `wordings`: what a model draws, and what is kept, with each wording of a tool's annotation prompt.

`toolformer diagnose --wordings all` prints the same figures of texts of your own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.beyond.annotated import FrameTexts, Say
from toolformer_core.config import TOOL_NAMES
from toolformer_core.diagnose.run import DiagnoseConfig
from toolformer_core.diagnose.wordings import measure_wordings
from toolformer_core.lm.hf.engine import TransformersLM

__all__ = ["wordings"]


def wordings(lm: TransformersLM, frames: Sequence[FrameTexts], say: Say) -> dict[str, Any]:
    """Return, by frames, tool and number of the wording, the fields of `WordingFigures`."""
    found: dict[str, Any] = {}
    for some in frames:
        for tool in TOOL_NAMES:
            config = DiagnoseConfig(documents=some.documents)
            measured = measure_wordings(lm, {tool: some.tools[tool]}, some.texts, config)
            found.setdefault(some.name, {})[tool] = {str(one.wording): asdict(one) for one in measured}
            say(f"{some.name} {tool}: {len(found[some.name][tool])} wordings")
    return found
