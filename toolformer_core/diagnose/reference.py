"""The embedded model's own measures, shown next to every diagnosis.

`python -m toolformer_core.diagnose.reference` measures them again, after every change of what they depend on.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from toolformer_core.config import TOOL_NAMES
from toolformer_core.diagnose.gold import read_gold
from toolformer_core.diagnose.run import DiagnoseConfig, measure
from toolformer_core.diagnose.verdict import judge
from toolformer_core.lm.load import load_model
from toolformer_core.tools.build import build_tools

REFERENCE = Path(__file__).with_name("reference.json")
_DIGITS = 4  # significant: enough to compare, and few enough to hide rounding differences between machines
_DOCUMENTS = 48  # per tool; more than for a diagnosis, because the reference is measured once


@dataclass(frozen=True, slots=True)
class Reference:
    model: str  # its digest
    texts: str  # digest of corpus and gold calls
    documents: int  # per tool
    tools: Mapping[str, Mapping[str, float | None]]  # tool -> step -> measure


def read_reference(path: Path = REFERENCE) -> Reference:
    return Reference(**json.loads(path.read_text(encoding="utf-8")))


def main(tools: str = ",".join(TOOL_NAMES), documents: int = _DOCUMENTS, out: Path = REFERENCE) -> None:
    """Measure the reference; `documents` are per tool."""
    lm, texts = load_model("embedded"), read_gold()
    measures = {
        figures.tool: {
            check.step: None if check.measured is None else float(f"{check.measured:.{_DIGITS}g}")
            for check in judge(figures).checks
        }
        for figures in measure(lm, build_tools(tools.split(",")), texts, DiagnoseConfig(documents=documents))
    }
    reference = Reference(lm.digest, texts.digest, documents, measures)
    out.write_text(json.dumps(asdict(reference), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
