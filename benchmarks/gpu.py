"""What a GPU makes of annotation, finetuning and decoding: a random model of a Llama's shape, on whatever is there.

    python -m benchmarks.gpu [--shape 1b] [--documents 256] [--parts engine finetune decode] [--json]
    python -m benchmarks.gpu --shape tiny --documents 4      # tries every part on a CPU

    engine     FLOPs a second that scan and scoring need, by those of a matrix product in the same dtype; documents
               annotated a second, tools left out: scan, k m samples and three losses of k m made-up calls each
    finetune   tokens a second of packed rows in our loop, and of the same texts in the Trainer, a text a row
    decode     milliseconds a token of a batch, ours and `generate`'s; the tokens must be the same

Weights are random, so a draw never ends by itself and takes all of its tokens, and no call is well-formed; the calls
that are scored are made up. Seconds are by the clock, with the device waited for.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.decode import generate
from benchmarks.finetune import hugging_face, ours, wait_for_device
from benchmarks.lm_engine import Setting as Annotation
from benchmarks.lm_engine import candidates, draw_requests, prompt, tokenizer, top_positions, words
from benchmarks.report import parser_of, print_json, say, say_figures
from toolformer_core.decode.records import GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.lm.base import ScoreRequest
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.tools.calculator import Calculator

_DECODED = 64  # tokens
_PARTS = ("engine", "finetune", "decode")


# Shapes of a Llama; `1b` is that of Llama 3.2 1B, whose figures stand in its config.json.
_SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size")
SHAPES = {"1b": (16, 2048, 32, 8, 8192, 128_256), "tiny": (2, 64, 4, 2, 128, 2_000)}  # the last: the vocabulary


def random_model(shape: dict[str, int], device: str, dtype: torch.dtype) -> LlamaForCausalLM:
    """Return a model with random weights."""
    torch.manual_seed(0)
    more: dict[str, Any] = {**shape, "bos_token_id": 0, "eos_token_id": 0, "tie_word_embeddings": True}
    config = LlamaConfig(**more, max_position_embeddings=2048)
    with torch.device(device):
        model = LlamaForCausalLM(config)
    moved: Any = model
    return moved.to(dtype).eval()  # type: ignore[no-any-return]


def seconds(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result and the seconds until the device had it."""
    wait_for_device()
    begin = time.perf_counter()
    result = work()
    wait_for_device()
    return result, time.perf_counter() - begin


def matmul_tflops(device: str, dtype: torch.dtype, size: int) -> float:
    """Return 10^12 FLOPs a second of a product of two square matrices, the median of five."""
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    torch.mm(a, b)
    times = [seconds(lambda: [torch.mm(a, b) for _ in range(8)])[1] for _ in range(5)]
    return 8 * 2 * size**3 / statistics.median(times) / 1e12


def engine(lm: TransformersLM, width: int, s: Annotation, tflops: float) -> dict[str, float]:
    """Annotate documents, and return what it took."""
    texts = [words(s.tokens, s.vocab, 100 + i) for i in range(s.documents)]
    few_shot = prompt(s.prompt, s.vocab)
    _annotate(lm, few_shot, texts[:2], Annotation(s.vocab, 2, max_tokens=2))  # what is tried once is tried
    scan_s, draw_s, score_s, requests = _annotate(lm, few_shot, texts, s)
    per_token = 2 * sum(p.numel() for name, p in lm.hf_model.model.named_parameters() if "embed_tokens" not in name)
    logits = 2 * width * s.vocab
    scan = s.documents * (2 * s.tokens * per_token + s.tokens * logits) + s.prompt * per_token
    # A call stands before the whole text, which is read up to five tokens after its position.
    read = sum(len(lm.hf_model.encode(r.prefix)) + len(lm.hf_model.encode(r.text[: r.position])) + 5 for r in requests)
    score = read * per_token + 5 * len(requests) * logits
    return {
        "matmul_tflops": tflops,
        "scan_share": scan / scan_s / 1e12 / tflops,
        "score_share": score / score_s / 1e12 / tflops,
        "documents_per_s": s.documents / (scan_s + draw_s + score_s),
        "scan_s": scan_s,
        "draw_s": draw_s,
        "score_s": score_s,
    }


def _annotate(
    lm: TransformersLM, few_shot: Any, texts: list[str], s: Annotation
) -> tuple[float, float, float, list[ScoreRequest]]:
    """Return the seconds of scan, samples and scoring, and the distinct scores that were computed."""
    scan_s = draw_s = 0.0
    requests: list[ScoreRequest] = []
    scans = lm.scan(few_shot, texts)
    while True:
        scan, took = seconds(lambda: next(scans, None))
        scan_s += took
        if scan is None:
            break
        top = top_positions(scan, s.k)
        samples = draw_requests(top, s.m)
        _, took = seconds(partial(scan.draw, samples, max_tokens=s.max_tokens, temperature=1.0))
        draw_s += took
        for text, positions in top.items():
            requests += candidates(texts[text], text, positions, s)
    distinct = list(dict.fromkeys(requests))
    _, score_s = seconds(lambda: lm.log_probs(distinct))
    return scan_s, draw_s, score_s, distinct


def finetune(model: LlamaForCausalLM, coded: PreTrainedTokenizerFast, s: Annotation, device: str) -> dict[str, float]:
    """Train on the same texts in both ways, and return tokens a second of each and their ratio."""
    texts = [words(s.tokens, s.vocab, 500 + i) for i in range(256)]
    with tempfile.TemporaryDirectory() as name:
        model.save_pretrained(name)
        coded.save_pretrained(name)
        packed = ours(texts, 3, 4, packing=True, model=Path(name), batch=64, device=device)
        theirs = hugging_face(texts, 3, 8, model=Path(name), batch=64, device=device)
    return {"packed_tokens_per_s": packed, "trainer_tokens_per_s": theirs, "ratio": packed / theirs}


def decode(lm: TransformersLM, s: Annotation, rows: int) -> dict[str, float]:
    """Decode the same prompts in both ways; the command fails if their tokens differ."""
    toolformer = Toolformer(lm, [Calculator()], max_rows=rows)
    settings = GenerationSettings(max_new_tokens=_DECODED, top_k=1)
    prompts = [words(32, s.vocab, 900 + i) for i in range(rows)]
    theirs = generate(lm, prompts, _DECODED)
    written = [list(one.ids) for one in toolformer.generate(prompts, settings)]
    same = sum(a[: len(b)] == b for a, b in zip(theirs, written, strict=True))
    plain_s = statistics.median(seconds(partial(generate, lm, prompts, _DECODED))[1] for _ in range(3))
    ours_s = statistics.median(seconds(lambda: toolformer.generate(prompts, settings))[1] for _ in range(3))
    toolformer.close()
    return {
        "rows": rows,
        "same_rows": same,  # of bf16 rows some part where two tokens are as likely
        "generate_ms_per_token": 1000 * plain_s / _DECODED,
        "ours_ms_per_token": 1000 * ours_s / _DECODED,
        "ratio": ours_s / plain_s,
    }


def main() -> None:
    parser = parser_of(__doc__, documents=256)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="1b")
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=list(_PARTS))
    args = parser.parse_args()
    shape = dict(zip((*_SIZES, "vocab_size"), SHAPES[args.shape], strict=True))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model, coded = random_model(shape, device, dtype), tokenizer(shape["vocab_size"])
    setting = Annotation(vocab=shape["vocab_size"], documents=args.documents)
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    found: dict[str, Any] = {"device": name, "shape": args.shape}
    lm = TransformersLM(model, coded, name="random", digest="random")
    if "engine" in args.parts:
        found["engine"] = engine(
            lm, shape["hidden_size"], setting, matmul_tflops(device, dtype, 8192 if device == "cuda" else 512)
        )
    if "decode" in args.parts:
        found["decode"] = decode(lm, setting, 32)
    if "finetune" in args.parts:
        found["finetune"] = finetune(model, coded, setting, device)
    say(f"{name}, {args.shape}")
    for part in filter(found.__contains__, _PARTS):
        say(f"\n{part}")
        say_figures({figure: float(f"{value:.4g}") for figure, value in found[part].items()})
    if args.json:
        print_json(found)


if __name__ == "__main__":
    main()
