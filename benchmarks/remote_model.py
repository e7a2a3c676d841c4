"""A model behind a server against the same model here: what a scan sees, how scores differ, what a document takes.

    python benchmarks/remote_model.py [--model embedded] [--documents 3] [--json]

The server is a loopback server that answers as vLLM does (`tests/support/fake_vllm.py`), in this process, once with the
model in float32 and once in bfloat16, in which vLLM serves most models. It tells 20 tokens a position, vLLM's default,
and 200. Texts and calls are the small world's corpus and gold calls; each tool scans the documents that hold its calls,
with its own prompt. Two minutes.

    seen            positions at which the server tells p(" ["), by all of them
    top 5, top 20   of the 5 or 20 positions that are the likeliest here, the share that is among those of the server
    tau_s 0.05      positions with p(" [") above it: here, and of these the server's
    log p, loss     mean and largest difference of log p(" [") where it is seen, and of L+ of the gold calls, in nats
    decided alike   gold calls that pass tau_f, or do not, with both
    probe           mean difference of the probe from that of the model in float32, in nats per token
    scan, score     CPU seconds of the process for a document, by those of the model here

The server is this process: there is no network, and a batch holds one prompt. So the ratio of the times is the cost of
JSON, and of sharing nothing between texts. vLLM on a GPU has other figures.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import parser_of, print_json, say

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.fake_vllm import SERVED, fake_vllm
from toolformer_core.annotate.losses import loss, weights
from toolformer_core.config import PAPER_DECAY, TOOL_NAMES, tau_f_for
from toolformer_core.diagnose.gold import GoldCall, read_gold
from toolformer_core.lm.base import LanguageModel, ScoreRequest
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.load import load_model
from toolformer_core.lm.remote.engine import RemoteLM, load_remote_model
from toolformer_core.lm.remote.identity import difference, probe_of
from toolformer_core.prompts.load import load_prompt
from toolformer_core.records import Call
from toolformer_core.syntax import linearize

LIMITS = (20, 200)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
TAU_S = 0.05
_TOKENS = 5  # with a weight


def annotated(lm: LanguageModel, texts: dict[str, list[str]], calls: Sequence[tuple[GoldCall, str]]) -> dict[str, Any]:
    """Return log p(" [") by tool and text, the losses of the calls, and the CPU seconds of both."""
    begin = time.process_time()
    scans = {}
    for tool, of_tool in texts.items():
        for scan in lm.scan(load_prompt(tool), of_tool):
            scans |= {(tool, text): log_probs for text, log_probs in zip(scan.texts, scan.log_probs, strict=True)}
    scan_s = time.process_time() - begin
    w, requests = weights(PAPER_DECAY), []
    for call, text in calls:
        written = Call(TOOL_NAMES[call.tool], call.input)
        prefixes = ("", linearize(written, ""), linearize(written, call.value))
        requests += [ScoreRequest(prefix, text, call.position, _TOKENS) for prefix in prefixes]
    losses = np.array([loss(log_probs, w) for log_probs in lm.log_probs(requests)]).reshape(-1, 3)
    return {"scans": scans, "losses": losses, "scan_s": scan_s, "score_s": time.process_time() - begin - scan_s}


def compared(here: dict[str, Any], there: dict[str, Any], calls: Sequence[tuple[GoldCall, str]]) -> dict[str, Any]:
    """Return the figures of the docstring."""
    seen = positions = above = found = 0
    among = {5: [0, 0], 20: [0, 0]}
    differences: list[float] = []
    for key, real in here["scans"].items():
        told = there["scans"][key]
        known = np.isfinite(told)
        seen, positions = seen + int(known.sum()), positions + len(known)
        above += int((real > math.log(TAU_S)).sum())
        found += int(((real > math.log(TAU_S)) & (told > math.log(TAU_S))).sum())
        differences += np.abs(real - told)[known].tolist()
        for k, counts in among.items():
            best = np.argsort(-real, kind="stable")[:k]
            theirs = [int(at) for at in np.argsort(-told, kind="stable")[:k] if known[at]]
            counts[0] += len(set(best.tolist()) & set(theirs))
            counts[1] += len(best)
    gains = [np.minimum(of[:, 0], of[:, 1]) - of[:, 2] for of in (here["losses"], there["losses"])]
    tau_f = np.array([tau_f_for(call.tool) for call, _ in calls])
    scores = np.abs(here["losses"][:, 2] - there["losses"][:, 2])
    return {
        "seen": seen / positions,
        "positions": positions,
        "top_5": among[5][0] / among[5][1],
        "top_20": among[20][0] / among[20][1],
        "above_tau_s": [found, above],
        "log_p": [float(np.mean(differences)), float(np.max(differences))],
        "loss": [float(scores.mean()), float(scores.max())],
        "decided_alike": [int(((gains[0] >= tau_f) == (gains[1] >= tau_f)).sum()), len(calls)],
        "scan_time": there["scan_s"] / here["scan_s"],
        "score_time": there["score_s"] / here["score_s"],
    }


@contextmanager
def served(lm: TransformersLM, limit: int) -> Iterator[RemoteLM]:
    """Yield a model behind a loopback server that tells `limit` tokens a position."""
    with tempfile.TemporaryDirectory() as folder, fake_vllm(lm=lm, max_logprobs=limit) as server:
        lm.hf_model.tokenizer.save_pretrained(Path(folder))
        yield load_remote_model(f"remote+{server.url}#{SERVED}", tokenizer=folder)


def figures(model: str, documents: int) -> list[dict[str, Any]]:
    """Return a row for every precision and number of tokens told."""
    here, gold = load_model(model, device="cpu"), read_gold()
    texts: dict[str, list[str]] = {}
    calls: list[tuple[GoldCall, str]] = []
    for tool in TOOL_NAMES:
        chosen = [document for document in gold.documents if gold.of(document, tool)][:documents]
        texts[tool] = [document.text for document in chosen]
        calls += [(call, document.text) for document in chosen for call in gold.of(document, tool)]
    annotated(here, {tool: some[:1] for tool, some in texts.items()}, calls[:1])  # prompts are read once
    local, rows = annotated(here, texts, calls), []
    for name, dtype in DTYPES.items():
        lm = load_model(model, device="cpu")
        lm.hf_model.model.to(dtype)
        for limit in LIMITS:
            with served(lm, limit) as remote:
                told = annotated(remote, texts, calls)
                with served(here, limit) as plain:
                    probe = difference(remote.model.probe, probe_of(plain.server, plain.tokenizer))
            rows.append({"dtype": name, "logprobs": limit, "probe": probe, **compared(local, told, calls)})
    return rows


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--model", default="embedded", help="'embedded', a folder, or a hub name")
    parser.add_argument("--documents", type=int, default=3, help="per tool")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = figures(given.model, given.documents)
    say("| server | tells | seen | top 5 | top 20 | tau_s 0.05 | log p | loss | decided alike | probe | scan | score |")
    say("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        log_p, losses = (f"{row[name][0]:.2g}, {row[name][1]:.2g}" for name in ("log_p", "loss"))
        counts = ("{:,} of {:,}".format(*row[name]) for name in ("above_tau_s", "decided_alike"))
        above, alike = counts
        say(
            f"| {row['dtype']} | {row['logprobs']} | {row['seen']:.3f} | {row['top_5']:.3f} | {row['top_20']:.3f} "
            f"| {above} | {log_p} | {losses} | {alike} | {row['probe']:.2g} | {row['scan_time']:.2f} "
            f"| {row['score_time']:.2f} |"
        )
    if given.json:
        print_json(rows)


if __name__ == "__main__":
    main()
