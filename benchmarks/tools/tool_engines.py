"""How many questions and phrases a second QA's readers and MT's translators answer, one by one and in batches.

    python benchmarks/tools/tool_engines.py [--questions 32] [--layers 4] [--width 256] [--json]

The models have the given size and random weights, so what they say means nothing; what it costs is that of a real model
of the size, but for two things: random translators rarely end by themselves, so every text gets its full length, and
the vocabularies are small. The passages are the embedded ones, five per question. It prints a table, and with --json
one JSON object on the last line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    BertForQuestionAnswering,
    M2M100ForConditionalGeneration,
    T5ForConditionalGeneration,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.tiny_checkpoints import save_nllb, save_span_model, save_t5
from toolformer_core.records import ToolResult
from toolformer_core.tools.build import EMBEDDED_KNOWN
from toolformer_core.tools.mt import MT
from toolformer_core.tools.qa import QA
from toolformer_core.tools.qa_readers.embedded import ExtractiveReader
from toolformer_core.tools.qa_readers.spans import SpanReader
from toolformer_core.tools.qa_readers.text_to_text import TextToTextReader
from toolformer_core.tools.search.passages import PassageIndex, read_passages
from toolformer_core.tools.translators.ct2 import CTranslate2Translator
from toolformer_core.tools.translators.m2m100 import M2M100Translator

PHRASES = [
    "der Hund und die Katze sind heute in dem alten Haus am Fluss",
    "le tisserand de la ville est assis dans la maison du boulanger",
    "el historiador de la ciudad tiene la moneda en la casa",
    "il pittore della nave ha la moneta nella casa della madre",
]
CODES = ["eng_Latn", "deu_Latn", "fra_Latn", "spa_Latn", "ita_Latn"]


def enlarge(folder: Path, kind: Any, **sizes: int) -> Path:
    """Save a random model of other sizes in the place of a tiny one."""
    config = AutoConfig.from_pretrained(folder)
    for name, value in sizes.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    kind(config).save_pretrained(folder)
    return folder


def models(folder: Path, layers: int, width: int) -> dict[str, Path]:
    """Save one model of each kind; return their folders."""
    from ctranslate2.converters import TransformersConverter

    words = sorted({word for p in read_passages(EMBEDDED_KNOWN) for word in p.text.lower().split() if word.isalpha()})
    heads, inner = max(1, width // 64), 4 * width
    save_span_model(folder / "spans", words, positions=512)
    save_t5(folder / "t5", words)
    save_nllb(folder / "nllb", PHRASES, CODES)
    enlarge(
        folder / "spans",
        BertForQuestionAnswering,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
    )
    enlarge(
        folder / "t5",
        T5ForConditionalGeneration,
        d_model=width,
        d_kv=64,
        d_ff=inner,
        num_layers=layers,
        num_decoder_layers=layers,
        num_heads=heads,
    )
    enlarge(
        folder / "nllb",
        M2M100ForConditionalGeneration,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=inner,
        decoder_ffn_dim=inner,
    )
    files = ["tokenizer.json", "tokenizer_config.json"]
    TransformersConverter(str(folder / "nllb"), copy_files=files).convert(str(folder / "int8"), quantization="int8")
    return {name: folder / name for name in ("spans", "t5", "nllb", "int8")}


def rate(ask: Callable[[list[tuple[str, str]]], Sequence[ToolResult]], questions: Sequence[str], batch: int) -> float:
    """Return questions answered a second, asked so many at a time."""
    started = time.perf_counter()
    for at in range(0, len(questions), batch):
        ask([(question, "") for question in questions[at : at + batch]])
    return len(questions) / (time.perf_counter() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=32)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    index = PassageIndex(EMBEDDED_KNOWN)
    titles = list(dict.fromkeys(passage.title for passage in read_passages(EMBEDDED_KNOWN)))[: arguments.questions]
    questions = [f"What is {title} known for?" for title in titles]
    phrases = [PHRASES[n % len(PHRASES)] for n in range(arguments.questions)]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        saved = models(Path(folder), arguments.layers, arguments.width)
        tools: dict[str, tuple[QA | MT, list[str]]] = {
            "QA, embedded": (QA(index, ExtractiveReader()), questions),
            "QA, extractive model": (QA(index, SpanReader(str(saved["spans"]))), questions),
            "QA, text-to-text model": (QA(index, TextToTextReader(str(saved["t5"]))), questions),
            "MT, transformers": (MT(M2M100Translator(str(saved["nllb"]))), phrases),
            "MT, CTranslate2 int8": (MT(CTranslate2Translator(str(saved["int8"]))), phrases),
        }
        for name, (tool, asked) in tools.items():
            tool.load()
            tool.run(asked[0])
            few = asked[: max(6, len(asked) // 4)]
            alone, together = rate(tool.run_batch, few, 1), rate(tool.run_batch, asked, tool.limits.batch)
            rows.append({"tool": name, "alone": alone, "batch": tool.limits.batch, "together": together})
    device = "cuda" if torch.cuda.is_available() else f"cpu, {torch.get_num_threads()} threads"
    print(f"{arguments.layers} layers of {arguments.width}, {device}; questions a second")  # noqa: T201
    print(f"{'':<24}{'one by one':>12}{'batch':>8}{'in batches':>12}{'ratio':>8}")  # noqa: T201
    for row in rows:
        ratio = row["together"] / row["alone"]
        print(f"{row['tool']:<24}{row['alone']:>12.2f}{row['batch']:>8}{row['together']:>12.2f}{ratio:>8.1f}")  # noqa: T201
    if arguments.json:
        print(json.dumps({"layers": arguments.layers, "width": arguments.width, "device": device, "rows": rows}))  # noqa: T201


if __name__ == "__main__":
    main()
