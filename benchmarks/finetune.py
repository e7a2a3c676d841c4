"""Tokens per second of a finetuning step: Hugging Face's Trainer, our loop with a text a row, and with packing.

    python benchmarks/finetune.py [--corpus FILE] [--texts-a-pass 8 32 128] [--steps 6] [--repeats 3] [--json]

All train the embedded model on the same texts (the demo's documents, or a JSONL of others such as the demo's C*,
`finetunes/demo-toolformer-*/train.jsonl` in its data folder; some of them several times) with the same effective batch,
the paper's 128, precision and AdamW, in one process, taking turns, denormals flushed for all; a token counts if it is
predicted, padding does not. Without packing a step of 128 texts is taken in passes of 8 (the Trainer's default), or of
as many as requested, each padded to its longest text; a packed pass is a row of 1,024 tokens. `grouped` is the Trainer
told to put texts of like length together: it does so over the whole corpus, we within a step. Figures are medians over
the repeats, and ratios; `padding` is how many times it makes the tokens of the Trainer's passes more.
"""

import gzip
import json
import math
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from benchmarks.report import parser_of, print_json, say_figures
from toolformer_core.embedded import CORPUS, MODEL
from toolformer_core.finetune.events import read_events
from toolformer_core.finetune.program import train
from toolformer_core.finetune.recipe import Job, Recipe

BATCH = 128  # texts in a step
TEXTS = 3 * BATCH
LENGTH = 1024


class _Clock(TrainerCallback):
    """The seconds of every optimiser step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
        wait_for_device()
        self._begin = time.perf_counter()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        wait_for_device()
        self.seconds.append(time.perf_counter() - self._begin)


class _Counting:
    """A collator that keeps how many tokens of each batch are predicted."""

    def __init__(self, collate: Any) -> None:
        self._collate = collate
        self.tokens: list[int] = []

    def __call__(self, features: list[dict[str, list[int]]]) -> Any:
        self.tokens.append(sum(len(one["input_ids"]) - 1 for one in features))
        return self._collate(features)


def wait_for_device() -> None:
    """Return once the GPU, if there is one, has done what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _coded(texts: list[str], model: Path = MODEL) -> list[list[int]]:
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    return [[0, *ids, 0] for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]


def read_texts(corpus: Path) -> list[str]:
    """Return texts that fit into a row, for whole steps: the Trainer's last step of an epoch takes what is left."""
    whole = corpus.read_bytes()
    lines = (gzip.decompress(whole) if corpus.suffix == ".gz" else whole).decode().split("\n")
    texts = [json.loads(line)["text"] for line in lines if line]
    texts = [text for text, ids in zip(texts, _coded(texts), strict=True) if len(ids) <= LENGTH]
    return (texts * math.ceil(TEXTS / len(texts)))[:TEXTS]


def padding(texts: list[str], rows: int) -> float:
    """Return how many times the tokens of a pass grow by padding, where texts are drawn at random."""
    lengths = np.array([len(ids) for ids in _coded(texts)])
    drawn = np.stack([np.random.default_rng(i).permutation(lengths) for i in range(100)]).reshape(-1, rows)
    return float(drawn.max(axis=1).sum() * rows / drawn.sum())


def hugging_face(
    texts: list[str],
    steps: int,
    rows: int,
    *,
    grouped: bool = False,
    model: Path = MODEL,
    batch: int = BATCH,
    device: str = "cpu",
) -> float:
    """Return the Trainer's tokens per second; the first step warms up."""
    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.eos_token
    coded = [{"input_ids": ids} for ids in _coded(texts, model)]
    clock, passes = _Clock(), batch // rows
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps + 1,
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=passes,
            train_sampling_strategy="group_by_length" if grouped else "random",
            learning_rate=1e-5,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            use_cpu=device == "cpu",
            bf16=device == "cuda",
            dataloader_pin_memory=False,
            seed=0,
        )
        collate = _Counting(DataCollatorForLanguageModeling(tokenizer, mlm=False))
        weights: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        Trainer(weights, arguments, collate, coded, callbacks=[clock]).train()
    return sum(collate.tokens[passes : (steps + 1) * passes]) / sum(clock.seconds[1:])


def ours(
    texts: list[str],
    steps: int,
    rows: int,
    *,
    packing: bool = False,
    model: Path = MODEL,
    batch: int = BATCH,
    device: str = "cpu",
) -> float:
    """Return our tokens per second; the first step warms up."""
    recipe = Recipe(
        steps=steps + 1,
        batch=batch,
        micro_batch=rows,
        precision="bf16" if device == "cuda" else "fp32",
        packing=packing,
        evaluate_every=steps + 1,
        learning_rate=1e-5,
        sequence_length=LENGTH,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts), encoding="utf-8")
        train(Job(model=str(model), dev=None, device=device, recipe=recipe), folder)
        done = [e for e in read_events(folder)[0] if e["event"] == "step"]
    tokens = sum(e["tokens"] for e in done[1:])
    # speed is averaged from the first step on: take the first step's share out
    whole = sum(e["tokens"] for e in done) / done[-1]["tokens_per_second"]
    return float(tokens / (whole - done[0]["tokens"] / done[0]["tokens_per_second"]))


def measure(texts: list[str], steps: int, repeats: int, passes: list[int]) -> dict[str, float]:
    """Return medians of tokens per second, ratios to the Trainer's, and what padding costs, by texts a pass."""
    ways: dict[str, Callable[[], float]] = {"packed": lambda: ours(texts, steps, 1, packing=True)}
    for rows in passes:
        ways[f"trainer_{rows}"] = partial(hugging_face, texts, steps, rows)
        ways[f"trainer_grouped_{rows}"] = partial(hugging_face, texts, steps, rows, grouped=True)
        ways[f"a_text_a_row_{rows}"] = partial(ours, texts, steps, rows)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repeats):
        for name in list(ways) if turn % 2 == 0 else reversed(list(ways)):
            found[name].append(ways[name]())
    speed = {name: statistics.median(values) for name, values in found.items()}
    ratios = {}
    for rows in passes:
        own = f"a_text_a_row_{rows}"
        for other in (f"trainer_{rows}", f"trainer_grouped_{rows}"):
            ratios |= {f"{one}_to_{other}": speed[one] / speed[other] for one in (own, "packed")}
        ratios |= {f"packed_to_{own}": speed["packed"] / speed[own], f"padding_{rows}": padding(texts, rows)}
    return {f"{name}_tokens_per_second": value for name, value in speed.items()} | ratios


def main() -> None:
    parser = parser_of(__doc__, steps=6, repeats=3)  # steps that are timed in a turn, turns of each
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="JSONL with texts (default: the demo's)")
    parser.add_argument(
        "--texts-a-pass", type=int, nargs="+", default=[8], help="without packing; divisors of 128 (default 8)"
    )
    given = parser.parse_args()
    if any(BATCH % rows for rows in given.texts_a_pass):
        parser.error(f"--texts-a-pass takes divisors of {BATCH}")
    torch.set_flush_denormal(True)
    torch.set_num_threads(2)
    warnings.filterwarnings("ignore")
    found = measure(read_texts(given.corpus), given.steps, given.repeats, given.texts_a_pass)
    say_figures({name: round(value, 2) for name, value in found.items()})
    if given.json:
        print_json(found)


if __name__ == "__main__":
    main()
