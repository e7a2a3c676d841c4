"""The embedded model's own figures, shipped beside this module: what every diagnosis is shown next to.

`python -m toolformer_core.diagnose --reference` writes them anew, and has to after every change of the embedded model,
corpus, gold calls or prompts. No verdict depends on them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolformer_core.diagnose.figures import Figures
from toolformer_core.diagnose.verdict import judge

__all__ = ["REFERENCE", "Reference", "read_reference", "write_reference"]

REFERENCE = Path(__file__).with_name("reference.json")
_DIGITS = 4  # that count: enough to compare, and a change of the last bits of a sum changes no file


@dataclass(frozen=True, slots=True)
class Reference:
    """What was measured of the embedded model."""

    model: str  # its digest
    texts: str  # digest of corpus and gold calls
    documents: int  # per tool
    tools: Mapping[str, Mapping[str, Any]]  # tool -> `teachable`, `measured` by step, `figures`

    def measured(self, tool: str) -> Mapping[str, float | None]:
        """Return a tool's measures by step; none if it was not measured."""
        return dict(self.tools.get(tool, {}).get("measured", {}))


def read_reference(path: Path = REFERENCE) -> Reference:
    """Read the shipped figures; without the file, there are none to compare with."""
    if not path.is_file():
        return Reference("", "", 0, {})
    return Reference(**json.loads(path.read_text(encoding="utf-8")))


def write_reference(
    figures: Sequence[Figures], *, model: str, texts: str, documents: int, path: Path = REFERENCE
) -> None:
    """Write figures as the reference.

    Args:
        figures: of the embedded model, one per tool.
        model: its digest.
        texts: digest of the texts with gold calls.
        documents: per tool.
    """
    tools = {
        one.tool: {
            "teachable": judge(one).teachable,
            "measured": {check.step: _rounded(check.measured) for check in judge(one).checks},
            "figures": _rounded(asdict(one)),
        }
        for one in figures
    }
    reference = asdict(Reference(model, texts, documents, tools))
    path.write_text(json.dumps(reference, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return value
