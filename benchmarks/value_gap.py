"""Where a finetuned Toolformer, its calls disabled, predicts plain text worse than M + CC: after `make demo`.

    python benchmarks/value_gap.py --data toolformer-data [--json]

The small world's gold calls say which characters of the demo's development documents are values that a tool supplies.
Tokens are sorted into those values, the 25 characters behind a value, and everything else; each group's perplexity is
that of its own tokens, the rest of the text before them given.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from pathlib import Path
from typing import Any

import torch

from toolformer_core.embedded import ASSETS
from toolformer_core.lm.load import load_model

__all__ = ["measure"]

BEHIND = 25  # characters
GROUPS = ("value", "behind", "elsewhere", "all")


def _read(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def _group(start: int, spans: list[tuple[int, int]]) -> str:
    if any(begin <= start < end for begin, end in spans):
        return "value"
    return "behind" if any(end <= start < end + BEHIND for _, end in spans) else "elsewhere"


def measure(cc: Path, toolformer: Path) -> dict[str, dict[str, float]]:
    """Return, per group, its tokens and both models' perplexities.

    Args:
        cc, toolformer: the two jobs' folders.
    """
    gold = {row["url"]: row["calls"] for row in _read(ASSETS / "gold.jsonl.gz")}
    calls = {row["text"]: gold[row["url"]] for row in _read(ASSETS / "corpus.jsonl.gz")}
    texts = [row["text"] for row in _read(cc / "dev.jsonl")]
    tokens = dict.fromkeys(GROUPS, 0)
    nll = {name: dict.fromkeys(GROUPS, 0.0) for name in ("cc", "toolformer")}
    for name, folder in (("cc", cc), ("toolformer", toolformer)):
        lm = load_model(str(folder / "model"), device="cpu").hf_model
        (trigger,) = lm.trigger
        for text in texts:
            coded = lm.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
            spans = [(call["position"], call["position"] + 1 + len(call["value"])) for call in calls[text]]
            ids = torch.tensor([[lm.bos, *coded["input_ids"]]])
            with torch.no_grad():
                logits = lm.model(input_ids=ids).logits[0, :-1].float()
            logits[ids[0, 1:] != trigger, trigger] = -torch.inf  # calls disabled
            losses = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none").tolist()
            for loss, (start, _) in zip(losses, coded["offset_mapping"], strict=True):
                for group in (_group(start, spans), "all"):
                    nll[name][group] += loss
                    tokens[group] += name == "cc"
    return {
        group: {"tokens": tokens[group], **{name: math.exp(nll[name][group] / tokens[group]) for name in nll}}
        for group in GROUPS
    }


def _newest(data: Path, arm: str) -> Path:
    found = sorted(data.glob(f"finetunes/demo-{arm}-*/model"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise SystemExit(f"no finished training of the arm {arm} in {data}: run toolformer demo --data {data} first")
    return found[-1].parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("toolformer-data"), help="the demo's data folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    given = parser.parse_args()
    found = measure(_newest(given.data, "cc"), _newest(given.data, "toolformer"))
    print(f"{'tokens':<12}{'':>7}{'cc':>8}{'toolformer':>12}{'ratio':>8}")  # noqa: T201
    for group, row in found.items():
        ratio = row["toolformer"] / row["cc"]
        print(f"{group:<12}{row['tokens']:>7.0f}{row['cc']:>8.2f}{row['toolformer']:>12.2f}{ratio:>8.3f}")  # noqa: T201
    if given.json:
        print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    main()
