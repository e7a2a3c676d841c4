"""What the LM engine saves: samples and scores of a random GPT-2 against the same, computed the plain way.

    python benchmarks/lm_engine.py [--vocab 50257] [--max-tokens 64] [--json]

One tool: a scan of every document, m samples at each of its k likeliest positions, three losses of k m calls. Plain is
`PlainLM`: the prompt again for every draw (with keys and values kept from token to token), the whole text for every
score, one sequence at a time. Both run the same model and documents, the plain way only the first of them, in one
process, and their answers are compared. A draw of random weights all but never ends, so a call costs --max-tokens, both
ways; the default is the build's own. The calls that are scored are made up, as random weights write none.

Seconds are CPU seconds of the process, one thread. FLOPs are those that the answers need: no padding, attention as far
as it sees. The matrix product they are held against is measured before and after each part.

    calls_per_cpu_s        samples a second, the scan and the prompt included
    candidates_per_cpu_s   calls a second, with all three losses
    matmul_share           FLOPs a second in scan and scoring, by those of the matrix product
    peak_mb                most memory the process held while the engine ran
"""

import copy
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from benchmarks.report import parser_of, peak_mib, print_json, say_figures
from tests.support.plain_lm import PlainLM
from toolformer_core.config import MAX_CALL_TOKENS
from toolformer_core.lm.base import Draw, DrawRequest, LanguageModel, Scan, ScoreRequest
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.records import Call, Prompt
from toolformer_core.syntax import linearize

_LAYERS, _WIDTH, _HEADS, _CONTEXT = 4, 256, 4, 1024
_SCORED = 5  # tokens with a weight
_TOGETHER = 64  # documents a call of `log_probs`, as the stage hands them over


@dataclass(frozen=True, slots=True)
class Setting:
    """What is annotated."""

    vocab: int = 50257
    documents: int = 24
    tokens: int = 160
    prompt: int = 243
    k: int = 5
    m: int = 5
    max_tokens: int = MAX_CALL_TOKENS


@dataclass(slots=True)
class Run:
    """What one way took and answered."""

    documents: int
    scan_s: float = 0.0
    draw_s: float = 0.0
    score_s: float = 0.0
    gflops: list[float] = field(default_factory=list)  # of the matrix product, measured between the parts
    log_probs: dict[int, Any] = field(default_factory=dict)
    samples: dict[int, list[Draw]] = field(default_factory=dict)
    scores: list[Any] = field(default_factory=list)
    requests: list[ScoreRequest] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.scan_s + self.draw_s + self.score_s


def tokenizer(vocab: int) -> PreTrainedTokenizerFast:
    """Words `w0`, `w1`, ..., each a token with and without a space in front; and what calls are written with."""
    signs = ["<end>", " [", "[", "]", "Calculator", "(", ")", " ->", " +", "1", " 1"]
    half = (vocab - len(signs)) // 2
    words = [f"w{i}" for i in range(half)] + [f" w{i}" for i in range(vocab - len(signs) - half)]
    level = Tokenizer(models.WordLevel({w: i for i, w in enumerate([*signs, *words])}, unk_token="<end>"))
    level.pre_tokenizer = pre_tokenizers.Split(Regex(r" ?\w+| ?\->| ?[^\s\w]"), behavior="isolated")
    level.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=level, bos_token="<end>", eos_token="<end>")


def model(vocab: int) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=vocab,
        n_embd=_WIDTH,
        n_layer=_LAYERS,
        n_head=_HEADS,
        n_positions=_CONTEXT,
        bos_token_id=0,
        eos_token_id=0,
    )
    weights = GPT2LMHeadModel(config)
    weights.requires_grad_(False).eval()  # type: ignore[no-untyped-call]
    return weights


def words(n: int, vocab: int, seed: int) -> str:
    """n words that are a token each after a space."""
    draw = random.Random(seed)
    return " ".join(f"w{draw.randrange(vocab // 2 - 10)}" for _ in range(n))


def prompt(tokens: int, vocab: int, seed: int = 7) -> Prompt:
    """A prompt of this many tokens, [bos] included and both copies of the text left out."""
    return Prompt("calculator", words(tokens - 3, vocab, seed) + " ", " + ->")


def matmul_gflops() -> float:
    """10^9 FLOPs a CPU second of a float32 product of 1024 x 1024."""
    a, b, out = (torch.rand(1024, 1024) for _ in range(3))
    torch.mm(a, b, out=out)
    start = time.process_time()
    for _ in range(8):
        torch.mm(a, b, out=out)
    return 8 * 2 * 1024**3 / (time.process_time() - start) / 1e9


def annotate(lm: LanguageModel, few_shot: Prompt, texts: Sequence[str], s: Setting) -> Run:
    """Scan, draw and score; CPU seconds of each."""
    run = Run(len(texts), gflops=[matmul_gflops()])
    scans = lm.scan(few_shot, texts)
    start = time.process_time()
    while (scan := next(scans, None)) is not None:
        top = top_positions(scan, s.k)
        run.scan_s += time.process_time() - start
        requests = draw_requests(top, s.m)
        start = time.process_time()
        samples = scan.draw(requests, max_tokens=s.max_tokens, temperature=1.0)
        run.draw_s += time.process_time() - start
        for i, text in enumerate(scan.texts):
            run.log_probs[text] = scan.log_probs[i]
            run.samples[text] = [d for r, d in zip(requests, samples, strict=True) if r.text == text]
            run.requests += candidates(texts[text], text, top[text], s)
        run.gflops.append(matmul_gflops())
        start = time.process_time()
    order = {t: i for i, t in enumerate(texts)}
    run.requests.sort(key=lambda r: order[r.text])
    per = 3 * s.k * s.m * _TOGETHER
    start = time.process_time()
    for at in range(0, len(run.requests), per):
        run.scores += lm.log_probs(run.requests[at : at + per])
    run.score_s = time.process_time() - start
    run.gflops.append(matmul_gflops())
    return run


def top_positions(scan: Scan, k: int) -> dict[int, list[int]]:
    """The k likeliest positions of each text."""
    return {
        text: sorted(positions[np.argsort(-log_probs, kind="stable")[:k]].tolist())
        for text, positions, log_probs in zip(scan.texts, scan.positions, scan.log_probs, strict=True)
    }


def draw_requests(top: Mapping[int, Sequence[int]], m: int) -> list[DrawRequest]:
    """m samples at each position of each text."""
    return [
        DrawRequest(text, position, 1_000_003 * text + 101 * position + n)
        for text, positions in top.items()
        for position in positions
        for n in range(m)
    ]


def candidates(text: str, number: int, positions: Sequence[int], s: Setting) -> list[ScoreRequest]:
    """The three losses of m made-up calls at each position, ten tokens long with their response."""
    out = []
    for position in positions:
        for n in range(s.m):
            one, other, answer = words(3, s.vocab, hash((number, position, n))).split()
            call = Call("Calculator", f"{one} + {other}")
            prefixes = ("", linearize(call, ""), linearize(call, answer))
            out += [ScoreRequest(z, text, position, _SCORED) for z in prefixes]
    return out


def flops(lm: TransformersLM, run: Run, few_shot: Prompt, texts: Sequence[str]) -> tuple[float, float]:
    """FLOPs that scan and scoring need: each token once, the vocabulary where it is requested, no padding."""
    per_token = _LAYERS * 24 * _WIDTH**2
    per_logits = 2 * _WIDTH * lm.hf_model.lm_head.size
    head, tail = len(lm.hf_model.head_ids(few_shot)), len(lm.hf_model.encode(few_shot.tail))

    def passed(first: int, last: int) -> float:
        seen = (last * (last + 1) - first * (first + 1)) / 2
        return (last - first) * per_token + _LAYERS * 4 * _WIDTH * seen

    scan = passed(0, head)
    for text in range(run.documents):
        n = len(lm.hf_model.encode(" " + texts[text]))
        scan += passed(head, head + 2 * n + tail) + len(run.log_probs[text]) * per_logits
    ends: dict[tuple[str, str], int] = {}
    logits: set[tuple[str, str, int]] = set()
    for r, scores in zip(run.requests, run.scores, strict=True):
        end = len(lm.hf_model.encode(r.text[: r.position])) + len(scores)
        ends[r.prefix, r.text] = max(end, ends.get((r.prefix, r.text), 0))
        logits |= {(r.prefix, r.text, j) for j in range(end - len(scores), end)}
    score = len(logits) * per_logits + sum(passed(0, len(lm.hf_model.encode(z)) + end) for (z, _), end in ends.items())
    return scan, score


def engine(s: Setting, weights: GPT2LMHeadModel, coded: PreTrainedTokenizerFast) -> TransformersLM:
    """The engine, warm: the first draw tries what the model can do, and reads the vocabulary."""
    lm = TransformersLM(weights, coded, name="random", digest="random")
    annotate(lm, prompt(32, s.vocab, 8), [words(24, s.vocab, 9)], Setting(s.vocab, 1, max_tokens=2))
    return lm


def compare(s: Setting, plain_documents: int) -> dict[str, Any]:
    """Both ways, the figures of both, and how far their answers are apart."""
    coded, weights = tokenizer(s.vocab), model(s.vocab)
    texts = [words(s.tokens, s.vocab, 100 + i) for i in range(s.documents)]
    few_shot = prompt(s.prompt, s.vocab)
    plain_network = TransformersLM(copy.deepcopy(weights), coded, name="plain", digest="plain").hf_model
    lm = engine(s, weights, coded)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the peak so far
    ours = annotate(lm, few_shot, texts, s)
    peak = peak_mib()
    plain = annotate(PlainLM(plain_network), few_shot, texts[:plain_documents], s)
    scan_flops, score_flops = flops(lm, ours, few_shot, texts)
    rate = statistics.median(ours.gflops)
    calls = s.k * s.m
    return {
        **asdict(s),
        "speedup_end_to_end": round(plain.seconds / plain_documents / (ours.seconds / s.documents), 2),
        "calls_per_cpu_s": round(calls * s.documents / (ours.scan_s + ours.draw_s), 2),
        "candidates_per_cpu_s": round(calls * s.documents / ours.score_s, 2),
        "documents_per_cpu_s": round(s.documents / ours.seconds, 3),
        "matmul_share": round((scan_flops + score_flops) / (ours.scan_s + ours.score_s) / 1e9 / rate, 3),
        "matmul_share_scan": round(scan_flops / ours.scan_s / 1e9 / rate, 3),
        "matmul_share_score": round(score_flops / ours.score_s / 1e9 / rate, 3),
        "matmul_gflops": round(rate, 1),
        "matmul_gflops_range": [round(min(ours.gflops), 1), round(max(ours.gflops), 1)],
        "peak_mb": round(peak),
        "calls_per_cpu_s_at_100_gflops": round(calls * s.documents / (ours.scan_s + ours.draw_s) * 100 / rate, 2),
        "candidates_per_cpu_s_at_100_gflops": round(calls * s.documents / ours.score_s * 100 / rate, 2),
        "plain_documents": plain_documents,
        "plain_calls_per_cpu_s": round(calls * plain_documents / (plain.scan_s + plain.draw_s), 2),
        "plain_candidates_per_cpu_s": round(calls * plain_documents / plain.score_s, 2),
        **_apart(ours, plain),
    }


def _apart(ours: Run, plain: Run) -> dict[str, float]:
    """How far the two ways' answers are apart, over the documents that both did."""
    pairs = zip(ours.requests, plain.requests, strict=False)
    if any(a != b for a, b in pairs):
        sys.exit("the two ways did not choose the same positions")
    return {
        "scan_apart": max(float(np.abs(ours.log_probs[t] - other).max()) for t, other in plain.log_probs.items()),
        "score_apart": max(
            float(np.abs(a - b).max(initial=0)) for a, b in zip(ours.scores, plain.scores, strict=False)
        ),
        "samples_unlike": sum(
            a != b for t, other in plain.samples.items() for a, b in zip(ours.samples[t], other, strict=True)
        ),
    }


def main() -> None:
    # of the documents, how many go the plain way
    parser = parser_of(__doc__, **asdict(Setting()), plain_documents=2)
    a = parser.parse_args()
    torch.set_num_threads(1)
    s = Setting(**{name: getattr(a, name) for name in asdict(Setting())})
    found = compare(s, min(a.plain_documents, s.documents))
    say_figures(found)
    if a.json:
        print_json(found)


if __name__ == "__main__":
    main()
