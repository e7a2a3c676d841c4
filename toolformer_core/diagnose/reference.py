"""The embedded model's own figures, shipped beside this module and shown next to every diagnosis.

`python -m toolformer_core.diagnose --reference` measures them again, which is necessary after every change of the
embedded model, corpus, gold calls, prompts or prefilters. No verdict depends on them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolformer_core.diagnose.figures import Figures
from toolformer_core.diagnose.verdict import judge

REFERENCE = Path(__file__).with_name("reference.json")
_DIGITS = 4  # significant: enough to compare, and few enough to hide rounding differences between machines


@dataclass(frozen=True, slots=True)
class Reference:
    """The measurements of the embedded model."""

    model: str  # its digest
    texts: str  # digest of corpus and gold calls
    documents: int  # per tool
    tools: Mapping[str, Mapping[str, Any]]  # tool -> `teachable`, `measured` by step, `figures`

    def measured(self, tool: str) -> Mapping[str, float | None]:
        """Return a tool's measures by step; empty if it was not measured."""
        return dict(self.tools.get(tool, {}).get("measured", {}))


def read_reference(path: Path = REFERENCE) -> Reference:
    """Read the shipped figures; without the file, return an empty reference."""
    if not path.is_file():
        return Reference("", "", 0, {})
    return Reference(**json.loads(path.read_text(encoding="utf-8")))


def write_reference(
    figures: Sequence[Figures], *, model: str, texts: str, documents: int, path: Path = REFERENCE
) -> None:
    """Write figures as the reference.

    Args:
        figures: of the embedded model, one per tool.
        model: the model's digest.
        texts: digest of the texts with gold calls.
        documents: documents per tool.
        path: the file to write.
    """
    tools = {
        tool_figures.tool: {
            "teachable": judge(tool_figures).teachable,
            "measured": {check.step: _rounded(check.measured) for check in judge(tool_figures).checks},
            "figures": _rounded(asdict(tool_figures)),
        }
        for tool_figures in figures
    }
    reference = asdict(Reference(model, texts, documents, tools))
    path.write_text(json.dumps(reference, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    return value
