"""`python -m toolformer_core.diagnose --reference` measures the embedded model and writes a new `reference.json`.

The command for users is `toolformer diagnose`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from toolformer_core.config import TOOL_NAMES
from toolformer_core.diagnose.gold import read_gold
from toolformer_core.diagnose.reference import REFERENCE, write_reference
from toolformer_core.diagnose.run import DiagnoseConfig, measure
from toolformer_core.lm.load import load_model
from toolformer_core.tools.build import build_tools

_DOCUMENTS = 48  # per tool; more than for a diagnosis, because the reference is measured once


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m toolformer_core.diagnose", description=__doc__)
    parser.add_argument("--reference", action="store_true", required=True, help="write a new reference")
    parser.add_argument("--documents", type=int, default=_DOCUMENTS, help="per tool")
    parser.add_argument("--out", type=Path, default=REFERENCE)
    arguments = parser.parse_args()
    lm, texts = load_model("embedded"), read_gold()
    measured = measure(lm, build_tools(list(TOOL_NAMES)), texts, DiagnoseConfig(documents=arguments.documents))
    figures = [tool.figures for tool in measured]
    write_reference(figures, model=lm.digest, texts=texts.digest, documents=arguments.documents, path=arguments.out)


if __name__ == "__main__":
    main()
