"""What decoding with tools costs against plain `generate`, and what a batch gains over one sequence at a time.

    python benchmarks/decode.py [--repeats 9] [--json]

Overhead: the same prompts, the same tokens (checked), batches of 1 and of 8; the trigger is watched for at every token
(k = 1) and no call is made. Both ways run in turn, in changing order; the figure is the median of the ratios of
neighbours, as a busy machine slows both.

Batch: 32 prompts that are continued with a call (k = 200), once together, once one by one. The generations must be
equal, and each must have a call.

On the embedded model, on this machine's CPU. Ratios count: absolute times are those of the hour.
"""

import gzip
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.report import parser_of, print_json, say, say_figures, sum_prompt
from toolformer_core.decode.records import GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.embedded import CORPUS
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.load import load_model
from toolformer_core.tools.calculator import Calculator

_TOKENS = 48
_MOST_OVERHEAD = 1.05
_LEAST_GAIN = 5.0


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def generate(lm: TransformersLM, prompts: list[str], tokens: int) -> list[list[int]]:
    """Return the tokens that transformers' `generate` writes after each prompt."""
    hf_model = lm.hf_model
    rows = [[hf_model.bos, *hf_model.encode(p)] for p in prompts]
    longest = max(len(r) for r in rows)
    ids = torch.tensor([[0] * (longest - len(r)) + r for r in rows], device=hf_model.device)
    mask = torch.tensor([[0] * (longest - len(r)) + [1] * len(r) for r in rows], device=hf_model.device)
    out = hf_model.model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False, pad_token_id=0
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


def overhead(lm: TransformersLM, rows: int, repeats: int) -> dict[str, float]:
    """Measure both ways of decoding `rows` prompts; exits if their tokens differ."""
    t = Toolformer(lm, [Calculator()])
    settings = GenerationSettings(max_new_tokens=_TOKENS, top_k=1)
    prompts = _prompts(t, settings, rows)
    if [list(g.ids) for g in t.generate(prompts, settings)] != generate(lm, prompts, _TOKENS):
        sys.exit("the tokens are not those of generate")
    ratios, plain_s, ours_s = [], [], []
    for repeat in range(repeats):
        runs: list[Callable[[], Any]] = [lambda: generate(lm, prompts, _TOKENS), lambda: t.generate(prompts, settings)]
        took = {way: _seconds(runs[way]) for way in ((0, 1), (1, 0))[repeat % 2]}
        ratios.append(took[1] / took[0])
        plain_s.append(took[0])
        ours_s.append(took[1])
    per_step = 1000 / _TOKENS
    return {
        "rows": rows,
        "ratio": round(statistics.median(ratios), 3),  # less than 1 is faster than `generate`
        "generate_ms": round(statistics.median(plain_s) * per_step, 3),  # a token step
        "ours_ms": round(statistics.median(ours_s) * per_step, 3),
    }


def batch(lm: TransformersLM, rows: int, repeats: int) -> dict[str, float]:
    """Measure a batch with calls; exits if its generations are not those of one by one."""
    t = Toolformer(lm, [Calculator()], max_rows=rows)
    settings = GenerationSettings(max_new_tokens=_TOKENS, top_k=200)
    prompts = [sum_prompt(i) for i in range(rows)]
    alone = [t.generate([p], settings)[0] for p in prompts]
    together = t.generate(prompts, settings)
    if [g.ids for g in alone] != [g.ids for g in together]:
        sys.exit("the batch is not its sequences one by one")
    if not all(g.calls for g in together):
        sys.exit("not every prompt is continued with a call")
    singly, jointly = [], []
    for _ in range(repeats):
        singly.append(_seconds(lambda: [t.generate([p], settings) for p in prompts]))
        jointly.append(_seconds(lambda: t.generate(prompts, settings)))
    return {
        "rows": rows,
        "calls": sum(call.failure is None for g in together for call in g.calls),  # answered by the tool
        "tokens": sum(len(g.ids) for g in together),  # all that were written or inserted
        "one_by_one_s": round(statistics.median(singly), 3),
        "together_s": round(statistics.median(jointly), 3),
        "gain": round(statistics.median(s / j for s, j in zip(singly, jointly, strict=True)), 2),
    }


def main() -> None:
    a = parser_of(__doc__, repeats=9).parse_args()
    lm = load_model("embedded", device="cpu")
    costs = [overhead(lm, rows, a.repeats) for rows in (1, 8)]
    gain = batch(lm, 32, max(3, a.repeats // 3))
    for figures in (*costs, gain):
        say_figures(figures)
        say()
    if a.json:
        print_json({"overhead": costs, "batch": gain})
    if any(cost["ratio"] > _MOST_OVERHEAD for cost in costs) or gain["gain"] < _LEAST_GAIN:
        sys.exit(1)


if __name__ == "__main__":
    main()
