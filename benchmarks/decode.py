"""What decoding with tools costs against plain `generate`, and what a batch gains over one sequence at a time.

    python benchmarks/decode.py [--repeats 9] [--threads 1] [--json]

Overhead: the same prompts, the same tokens (checked), batches of 1 and of 8; the trigger is watched for at every token
(k = 1) and no call is made. Both ways run in turn, in changing order; the figure is the median of the ratios of
neighbours, as a busy machine slows both.

Batch: 32 prompts whose text is a sum with worked examples before it, k = 200, so that nearly all make a call; once
together, once one by one. The generations must be equal.

On the embedded model, on this machine's CPU. Ratios count: absolute times are those of the hour.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from toolformer_core.decode.records import GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.embedded import CORPUS
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.load import load_model
from toolformer_core.tools.calculator import Calculator

_TOKENS = 48
_EXAMPLES = (
    "The sum of 12 and 30 is [Calculator(12 + 30) -> 42] 42. "
    "The farm keeps 8 sheep and 3 goats, that is [Calculator(8 + 3) -> 11] 11 animals. "
)
_MOST_OVERHEAD = 1.05
_LEAST_GAIN = 5.0


@dataclass(frozen=True, slots=True)
class Overhead:
    """Ours against `generate` on one batch size."""

    rows: int
    ratio: float  # median over the repeats; less than 1 is faster than `generate`
    generate_ms: float  # a token step, median
    ours_ms: float


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences together against one by one."""

    rows: int
    calls: int  # answered by the tool
    tokens: int  # all that were written or inserted
    one_by_one_s: float
    together_s: float
    gain: float


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _generate(lm: TransformersLM, prompts: list[str]) -> list[list[int]]:
    hf_model = lm.hf_model
    rows = [[hf_model.bos, *hf_model.encode(p)] for p in prompts]
    longest = max(len(r) for r in rows)
    ids = torch.tensor([[0] * (longest - len(r)) + r for r in rows])
    mask = torch.tensor([[0] * (longest - len(r)) + [1] * len(r) for r in rows])
    out = hf_model.model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=_TOKENS, do_sample=False, pad_token_id=0
    )
    return out[:, longest:].tolist()  # type: ignore[no-any-return]


def _prompts(t: Toolformer, settings: GenerationSettings, count: int) -> list[str]:
    """Beginnings of corpus documents that the model goes on from for all requested tokens, without a bracket."""
    with gzip.open(CORPUS, "rt", encoding="utf-8") as lines:
        starts = [" ".join(json.loads(line)["text"].split()[:14]) for line in lines][:200]
    found = t.generate(starts, settings)
    usable = [s for s, g in zip(starts, found, strict=True) if g.new_tokens == _TOKENS and "[" not in g.text]
    if len(usable) < count:
        sys.exit(f"only {len(usable)} prompts go on for {_TOKENS} tokens")
    return usable[:count]


def overhead(lm: TransformersLM, rows: int, repeats: int) -> Overhead:
    """Measure both ways of decoding `rows` prompts; exits if their tokens differ."""
    t = Toolformer(lm, [Calculator()])
    settings = GenerationSettings(max_new_tokens=_TOKENS, top_k=1)
    prompts = _prompts(t, settings, rows)
    if [list(g.ids) for g in t.generate(prompts, settings)] != _generate(lm, prompts):
        sys.exit("the tokens are not those of generate")
    ratios, plain_s, ours_s = [], [], []
    for repeat in range(repeats):
        runs: list[Callable[[], Any]] = [lambda: _generate(lm, prompts), lambda: t.generate(prompts, settings)]
        if repeat % 2:
            ours, plain = _seconds(runs[1]), _seconds(runs[0])
        else:
            plain, ours = _seconds(runs[0]), _seconds(runs[1])
        ratios.append(ours / plain)
        plain_s.append(plain)
        ours_s.append(ours)
    per_step = 1000 / _TOKENS
    return Overhead(
        rows,
        round(statistics.median(ratios), 3),
        round(statistics.median(plain_s) * per_step, 3),
        round(statistics.median(ours_s) * per_step, 3),
    )


def batch(lm: TransformersLM, rows: int, repeats: int) -> Batch:
    """Measure a batch with calls; exits if its generations are not those of one by one."""
    t = Toolformer(lm, [Calculator()], max_rows=rows)
    settings = GenerationSettings(max_new_tokens=_TOKENS, top_k=200)
    prompts = [f"{_EXAMPLES}The sum of {10 + 7 * i % 89} and {11 + 5 * i % 83} is" for i in range(rows)]
    alone = [t.generate([p], settings)[0] for p in prompts]
    together = t.generate(prompts, settings)
    if [g.ids for g in alone] != [g.ids for g in together]:
        sys.exit("the batch is not its sequences one by one")
    singly, jointly = [], []
    for _ in range(repeats):
        singly.append(_seconds(lambda: [t.generate([p], settings) for p in prompts]))
        jointly.append(_seconds(lambda: t.generate(prompts, settings)))
    return Batch(
        rows,
        sum(call.failure is None for g in together for call in g.calls),
        sum(len(g.ids) for g in together),
        round(statistics.median(singly), 3),
        round(statistics.median(jointly), 3),
        round(statistics.median(s / j for s, j in zip(singly, jointly, strict=True)), 2),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, help="of the model; 1 where others use the machine too")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    a = parser.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    lm = load_model("embedded", device="cpu")
    costs = [overhead(lm, rows, a.repeats) for rows in (1, 8)]
    gain = batch(lm, 32, max(3, a.repeats // 3))
    print("overhead   rows   generate ms/step   ours ms/step   ratio")  # noqa: T201
    for c in costs:
        print(f"{c.rows:>15} {c.generate_ms:>18} {c.ours_ms:>14} {c.ratio:>7}")  # noqa: T201
    print("batch      rows   calls   tokens   one by one s   together s   gain")  # noqa: T201
    print(  # noqa: T201
        f"{gain.rows:>15} {gain.calls:>7} {gain.tokens:>8} {gain.one_by_one_s:>14} {gain.together_s:>12} {gain.gain:>6}"
    )
    if a.json:
        print(json.dumps({"overhead": [asdict(c) for c in costs], "batch": asdict(gain)}))  # noqa: T201
    if any(c.ratio > _MOST_OVERHEAD for c in costs) or gain.gain < _LEAST_GAIN:
        sys.exit(1)


if __name__ == "__main__":
    main()
