"""What is assumed where no sample build says it: a line each, with its origin; and the cards.

Shares of documents kept are the paper's for the calendar and those of 1,000 documents of C4 for the others, examples of
C* those of Table 2 as if the paper's corpus had a million documents. What becomes of draws no paper says.
"""

from __future__ import annotations

from collections.abc import Mapping

from flows.cost.assumptions import ASSUMED, CONFIG, MEASURED, PAPER, SHARE, Assumption
from toolformer_core.evaluate.figures import EXAMPLES_BY_THRESHOLD

_C4 = "1,000 documents of C4 (en)"
_STUB = "python benchmarks/overhead.py --documents 2000 --ms 2, its commits read with plan --from"
_APP_B = "Toolformer, App. B; the default of toolformer finetune"

DEFAULTS: Mapping[str, Assumption] = {
    line.name: line
    for line in (
        # Rates that a sample build measures for each tool.
        Assumption("kept_share", 1.0, SHARE, CONFIG, "a tool of your own, unless it declares a filter"),
        Assumption("calculator.kept_share", 0.117, SHARE, MEASURED, _C4),
        Assumption("calendar.kept_share", 0.18, SHARE, PAPER, "Toolformer, App. A.1: CCNet with a date in the URL"),
        Assumption("wikisearch.kept_share", 0.989, SHARE, MEASURED, _C4),
        Assumption("qa.kept_share", 0.989, SHARE, MEASURED, _C4),
        Assumption("mt.kept_share", 0.005, SHARE, MEASURED, _C4),
        Assumption("ok_share", 0.5, SHARE, ASSUMED, "draws that are calls of the tool; a sample build counts them"),
        Assumption("calls_per_ok_draw", 0.5, "calls", ASSUMED, "distinct questions among such draws, retries included"),
        Assumption("scored_per_ok_draw", 0.6, "calls", ASSUMED, "distinct calls with a response among such draws"),
        Assumption("draw_tokens", 12.0, "tokens", ASSUMED, "a draw, from its bracket to its end"),
        Assumption("call_seconds", 0.001, "s", MEASURED, f"calculator and calendar; a model takes longer; {_STUB}"),
        Assumption("calls_at_once", 32.0, "calls", CONFIG, "ToolLimits.at_once, for each process", positive=True),
        Assumption("prefilter_ms", 1.18, "ms CPU", MEASURED, f"a document; the calculator's; {_C4}"),
        Assumption("sample_ms", 0.23, "ms CPU", MEASURED, f"a document kept, beside the model's work; {_STUB}"),
        Assumption("execute_ms", 0.06, "ms CPU", MEASURED, f"a call of the tool, in the program; {_STUB}"),
        Assumption("score_ms", 0.022, "ms CPU", MEASURED, f"a scored call, beside the model's work; {_STUB}"),
        # Of the whole run.
        Assumption("characters", 2189.0, "characters", MEASURED, f"a document, mean of {_C4}"),
        Assumption("characters_a_token", 4.0, "characters", ASSUMED, "English text, large vocabulary", positive=True),
        Assumption("text_copies", 2.0, "copies", CONFIG, "a scan reads the text as Input and as Output", positive=True),
        Assumption("prompt_tokens", 350.0, "tokens", CONFIG, "looked back at by a scan and its draws, computed once"),
        Assumption("padding", 1.05, "times", ASSUMED, "batches are sorted by length", positive=True),
        Assumption("call_tokens", 25.0, "tokens", ASSUMED, "e(c, r) in front of a scored text"),
        Assumption("ingest_ms", 0.025, "ms CPU", MEASURED, f"a document, one process; {_C4}"),
        Assumption("assemble_ms", 0.055, "ms CPU", MEASURED, f"a document, all tools; {_STUB}"),
        Assumption("mfu", 0.4, SHARE, ASSUMED, "of the card's bf16 rate in scan and scoring", positive=True),
        Assumption("bandwidth_share", 0.6, SHARE, ASSUMED, "of its memory's rate while calls are drawn", positive=True),
        Assumption("decode_rows", 128.0, "rows", ASSUMED, "draws that are continued together", positive=True),
        Assumption("gpu_busy_share", 0.93, SHARE, MEASURED, "python benchmarks/gpu_wait.py", positive=True),
        Assumption("cores_per_gpu", 8.0, "cores", ASSUMED, "beside each card, as cloud machines have them"),
        Assumption("cpu_gflops", 143.0, "GFLOP/s", MEASURED, "a core: benchmarks/lm_engine.py", positive=True),
        Assumption("cpu_mfu", 0.59, SHARE, MEASURED, "python benchmarks/lm_engine.py", positive=True),
        Assumption("cpu_price", 0.04, "per core-hour", ASSUMED, "a virtual core of a general-purpose cloud machine"),
        # Of the finetuning.
        Assumption("steps", 2000.0, "steps", PAPER, _APP_B),
        Assumption("batch", 128.0, "texts", PAPER, _APP_B),
        Assumption("sequence_length", 1024.0, "tokens", PAPER, _APP_B, positive=True),
        Assumption("evaluate_every", 500.0, "steps", PAPER, _APP_B, positive=True),
        Assumption("dev_documents", 1000.0, "documents", PAPER, _APP_B),
        Assumption("training_passes", 4.0, "forward passes", CONFIG, "forward, backward, activations again"),
        Assumption("training_mfu", 0.35, SHARE, ASSUMED, "of the card's bf16 rate; ZeRO-3", positive=True),
    )
}

# Card -> TFLOP/s of bf16 without sparsity, GB/s of its memory, and the maker's page.
CARDS: Mapping[str, tuple[float, float, str]] = {
    "a100": (312.0, 2039.0, "NVIDIA A100 data sheet, A100 80GB SXM"),
    "a100-40gb": (312.0, 1555.0, "NVIDIA A100 data sheet, A100 40GB SXM (the card of Toolformer, App. B)"),
    "h100": (989.4, 3350.0, "NVIDIA H100 data sheet, H100 SXM"),
    "h100-pcie": (756.0, 2000.0, "NVIDIA H100 data sheet, H100 PCIe"),
    "h200": (989.4, 4800.0, "NVIDIA H200 data sheet, H200 SXM"),
    "b200": (2250.0, 8000.0, "NVIDIA Blackwell data sheet, HGX B200, per GPU"),
    "l40s": (362.05, 864.0, "NVIDIA L40S data sheet"),
    "l4": (121.0, 300.0, "NVIDIA L4 data sheet (242 with sparsity)"),
    "mi300x": (1307.4, 5300.0, "AMD Instinct MI300X data sheet"),
}


def examples_a_document(tool: str, tau_f: float) -> tuple[float, str, str]:
    """Return the examples of C* per document at the tau_f of Table 2 that is nearest: value, origin, source."""
    counts = EXAMPLES_BY_THRESHOLD.get(tool)
    if counts is None:
        return 0.01, ASSUMED, "between the paper's calendar and its calculator"
    nearest = min(counts, key=lambda tau: (abs(tau - tau_f), tau))
    source = f"Toolformer, Table 2 at tau_f {nearest:g}, over a million documents (section 7: more than a million)"
    return counts[nearest] / 1_000_000, PAPER, source
