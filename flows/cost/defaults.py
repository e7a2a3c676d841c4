"""What is assumed where no sample build says it: a line each, with its origin.

    | figures                              | from                                                         |
    |--------------------------------------|--------------------------------------------------------------|
    | share of documents kept              | the paper for calendar; for the others 1,000 documents of C4 |
    | examples of C* per document          | Table 2, counted as if the paper's corpus had a million      |
    | draws per document                   | k x m of the config                                          |
    | what becomes of draws                | assumed: no paper says it. A sample build does               |
    | CPU and bytes                        | builds of this repository, with their commands               |

Figures per tool stand in tables by key; a user's own tool has the line that all tools share.
"""

from __future__ import annotations

from collections.abc import Mapping

from flows.cost.assumptions import ASSUMED, CONFIG, MEASURED, PAPER, SHARE, VENDOR, Assumption

__all__ = ["EXAMPLES", "KEPT", "RATES", "SINGLE", "TABLE_2", "per_document_examples"]

_C4 = "1,000 documents of C4 (en), `prefilter` over all of them"
_STUB = "python benchmarks/overhead.py --documents 2000 --ms 2, its commits read with plan --from"

# tool -> share of the corpus that its prefilter keeps
KEPT: Mapping[str, tuple[float, str, str]] = {
    "calculator": (0.117, MEASURED, _C4),
    "calendar": (0.18, PAPER, "Toolformer, App. A.1: around 18 % of CCNet have a date in their URL"),
    "wikisearch": (0.989, MEASURED, _C4),
    "qa": (0.989, MEASURED, _C4),
    "mt": (0.005, MEASURED, _C4),
}

# tool -> tau_f -> examples of C* in the paper's corpus
TABLE_2: Mapping[str, Mapping[float, int]] = {
    "qa": {0.5: 51_987, 1.0: 18_526, 2.0: 5_135},
    "wikisearch": {0.5: 207_241, 1.0: 60_974, 2.0: 13_944},
    "calculator": {0.5: 3_680, 1.0: 994, 2.0: 138},
    "calendar": {0.5: 61_811, 1.0: 20_587, 2.0: 3_007},
    "mt": {0.5: 3_156, 1.0: 1_034, 2.0: 229},
}
_PAPER_DOCUMENTS = 1_000_000
EXAMPLES = "Toolformer, Table 2 at tau_f {tau:g}, over a million documents (section 7: more than a million)"


def per_document_examples(tool: str, tau_f: float) -> tuple[float, str, str]:
    """Return the examples of C* per document of the corpus: value, origin, source; of the nearest tau_f in Table 2."""
    counts = TABLE_2.get(tool)
    if counts is None:
        return 0.01, ASSUMED, "the paper has no such tool; between its calendar and its calculator"
    nearest = min(counts, key=lambda tau: (abs(tau - tau_f), tau))
    return counts[nearest] / _PAPER_DOCUMENTS, PAPER, EXAMPLES.format(tau=nearest)


def _line(name: str, value: float, unit: str, origin: str, source: str) -> tuple[str, Assumption]:
    return name, Assumption(name, value, unit, origin, source)


# Rates that a sample build measures for each tool; without one, all tools share them.
RATES: Mapping[str, Assumption] = dict(
    [
        _line("ok_share", 0.5, SHARE, ASSUMED, "draws that are calls of the tool; a sample build counts them"),
        _line("calls_per_ok_draw", 0.5, "calls", ASSUMED, "distinct questions among such draws, retries included"),
        _line("scored_per_ok_draw", 0.6, "calls", ASSUMED, "distinct calls with a response among such draws"),
        _line("draw_tokens", 12.0, "tokens", ASSUMED, "a draw, from its bracket to its end; short inputs are the rule"),
        _line(
            "call_seconds", 0.001, "s", MEASURED, f"calculator and calendar; a model or a network takes longer; {_STUB}"
        ),
        _line("calls_at_once", 32.0, "calls", CONFIG, "ToolLimits.at_once, for each process that asks the tool"),
        _line("prefilter_ms", 1.18, "ms CPU", MEASURED, f"a document; the calculator's, the slowest but mt's; {_C4}"),
        _line("relevance_ms", 0.23, "ms CPU", ASSUMED, "a document, beside the model's work; as sample_ms"),
        _line("sample_ms", 0.23, "ms CPU", MEASURED, f"a document kept, beside the model's work; {_STUB}"),
        _line("execute_ms", 0.06, "ms CPU", MEASURED, f"a call of the tool, in the program; {_STUB}"),
        _line("score_ms", 0.022, "ms CPU", MEASURED, f"a scored call, beside the model's work; {_STUB}"),
        _line("prefilter_bytes", 21.0, "bytes", MEASURED, f"a document; {_STUB}"),
        _line("relevance_bytes", 21.0, "bytes", ASSUMED, "a document; as prefilter_bytes"),
        _line("sample_bytes", 59.0, "bytes", MEASURED, f"a document kept; {_STUB}"),
        _line("execute_bytes", 8.0, "bytes", MEASURED, f"a call of the tool; {_STUB}"),
        _line("score_bytes", 7.0, "bytes", MEASURED, f"a scored call; {_STUB}"),
    ]
)

# Figures of which there is one for the whole run.
SINGLE: Mapping[str, Assumption] = dict(
    [
        _line("characters", 2189.0, "characters", MEASURED, "a document, mean of 1,000 documents of C4 (en)"),
        _line(
            "characters_a_token", 4.0, "characters", ASSUMED, "rule of thumb for English text and large vocabularies"
        ),
        _line("text_copies", 2.0, "copies", CONFIG, "a scan reads the text as Input and again as Output"),
        _line(
            "prompt_tokens",
            350.0,
            "tokens",
            CONFIG,
            "looked back at by a scan and its draws, computed once per tool; the shipped prompts",
        ),
        _line("padding", 1.05, "times", ASSUMED, "batches are sorted by length; a sample build counts the padding"),
        _line("call_tokens", 25.0, "tokens", ASSUMED, "e(c, r) in front of a scored text"),
        _line(
            "mfu", 0.4, SHARE, ASSUMED, "of the card's bf16 rate in scan and scoring; 0.59 of a CPU's rate was measured"
        ),
        _line("bandwidth_share", 0.6, SHARE, ASSUMED, "of the card's memory rate while calls are drawn"),
        _line("decode_rows", 128.0, "rows", ASSUMED, "draws that are continued together: k x m of several documents"),
        _line("gpu_busy_share", 0.93, SHARE, MEASURED, "python benchmarks/gpu_wait.py: 0.916 to 0.944"),
        _line("cores_per_gpu", 8.0, "cores", ASSUMED, "beside each card, as cloud machines have them"),
        _line(
            "cpu_gflops", 143.0, "GFLOP/s", MEASURED, "one core, float32 matrix product: python benchmarks/lm_engine.py"
        ),
        _line("cpu_mfu", 0.59, SHARE, MEASURED, "python benchmarks/lm_engine.py, scan and scoring"),
        _line("ingest_ms", 0.025, "ms CPU", MEASURED, "a document, one process; 1,000 documents of C4 (en)"),
        _line("assemble_ms", 0.055, "ms CPU", MEASURED, f"a document, all tools; {_STUB}"),
        _line("ingest_bytes", 1100.0, "bytes", ASSUMED, "a document, compressed by zstd to half of its characters"),
        _line(
            "commit_cpu_ms", 4.0, "ms CPU", MEASURED, "a shard of a stage, before its first row; shards of 12 documents"
        ),
        _line("file_bytes", 2100.0, "bytes", MEASURED, "a Parquet file without rows; shards of 12 documents"),
        _line("commit_bytes", 1500.0, "bytes", MEASURED, f"one commit's JSON; {_STUB}"),
        _line("task_cpu_s", 0.05, "s", MEASURED, "a task run, in Prefect's server (flows/cutting.py)"),
        _line("submit_s", 0.2, "s", MEASURED, "a task run given to Dask, one after another: 200 took 40 s"),
        _line("thread_task_s", 0.005, "s", MEASURED, "a task run in a thread: 2 to 7 ms"),
        _line("commit_ms", 0.21, "ms", MEASURED, "a commit in the flow's process: python benchmarks/reconcile.py"),
        _line("publish_us", 1.2, "us", MEASURED, "a scored call in the last snapshot: python benchmarks/ask.py"),
        _line("start_s", 8.0, "s", MEASURED, "imports and Prefect's server: python benchmarks/overhead.py"),
        _line("puts_per_commit", 2.0, "requests", CONFIG, "the data file, then the commit (warehouse/store.py)"),
        _line("gets_per_commit", 5.0, "requests", CONFIG, "is it done?, its inputs, the flow reads the commit"),
        _line(
            "puts_per_second",
            3500.0,
            "requests/s",
            VENDOR,
            "Amazon S3, per partitioned prefix: PUT, COPY, POST, DELETE",
        ),
        _line("gets_per_second", 5500.0, "requests/s", VENDOR, "Amazon S3, per partitioned prefix: GET, HEAD"),
        _line("cpu_price", 0.04, "per core-hour", ASSUMED, "a virtual core of a general-purpose cloud machine"),
        _line("storage_price", 0.023, "per GB-month", VENDOR, "Amazon S3 Standard, first 50 TB, us-east-1"),
        _line("storage_months", 1.0, "months", ASSUMED, "how long the data is kept"),
    ]
)
