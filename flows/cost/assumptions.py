"""The numbers that a plan rests on: a line each, with its origin, and each replaceable with `--assume`; and the cards.

    | origin   | where the value comes from                                                        |
    |----------|-----------------------------------------------------------------------------------|
    | given    | `--assume name=value`, or an option                                               |
    | measured | the commits of a sample build, or a benchmark of this repository                  |
    | paper    | Toolformer, with the section or table                                             |
    | vendor   | the documentation of the card's or the service's maker                            |
    | config   | the defaults of this program, or the model's config.json                          |
    | computed | other assumptions                                                                 |
    | assumed  | nobody has measured it; the source says why this value                            |

Shares of documents kept are the paper's for the calendar and those of 1,000 documents of C4 for the others, examples of
C* those of Table 2 as if the paper's corpus had a million documents. What becomes of draws no paper says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.evaluate.figures import EXAMPLES_BY_THRESHOLD

GIVEN, MEASURED, PAPER, VENDOR = "given", "measured", "paper", "vendor"
CONFIG, COMPUTED, ASSUMED = "config", "computed", "assumed"
SHARE = "share"  # a unit: the value lies in [0, 1]


@dataclass(frozen=True, slots=True)
class Assumption:
    """One line of a plan's assumptions."""

    name: str
    value: float
    unit: str
    origin: str  # see the module
    source: str  # where exactly, or why


# Names, of a tool's the part after the point, of which 0 would make the plan meaningless, e.g. of a divisor.
_POSITIVE = frozenset(
    "calls_at_once characters_a_token text_copies padding mfu bandwidth_share decode_rows gpu_busy_share cpu_gflops "
    "cpu_mfu sequence_length evaluate_every training_mfu tflops bandwidth cores".split()
)
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
        Assumption("mt.kept_share", 0.058, SHARE, MEASURED, _C4),
        Assumption("ok_share", 0.5, SHARE, ASSUMED, "draws that are calls of the tool; a sample build counts them"),
        Assumption("calls_per_ok_draw", 0.5, "calls", ASSUMED, "distinct questions among such draws, retries included"),
        Assumption("scored_per_ok_draw", 0.6, "calls", ASSUMED, "distinct calls with a response among such draws"),
        Assumption("draw_tokens", 12.0, "tokens", ASSUMED, "a draw, from its bracket to its end"),
        Assumption("call_seconds", 0.001, "s", MEASURED, f"calculator and calendar; a model takes longer; {_STUB}"),
        Assumption("calls_at_once", 32.0, "calls", CONFIG, "ToolLimits.at_once, for each process"),
        Assumption("prefilter_ms", 1.18, "ms CPU", MEASURED, f"a document; the calculator's; {_C4}"),
        Assumption("sample_ms", 0.23, "ms CPU", MEASURED, f"a document kept, beside the model's work; {_STUB}"),
        Assumption("execute_ms", 0.06, "ms CPU", MEASURED, f"a call of the tool, in the program; {_STUB}"),
        Assumption("score_ms", 0.022, "ms CPU", MEASURED, f"a scored call, beside the model's work; {_STUB}"),
        # Of the whole run.
        Assumption("characters", 2189.0, "characters", MEASURED, f"a document, mean of {_C4}"),
        Assumption("characters_a_token", 4.0, "characters", ASSUMED, "English text, large vocabulary"),
        Assumption("text_copies", 2.0, "copies", CONFIG, "a scan reads the text as Input and as Output"),
        Assumption("prompt_tokens", 350.0, "tokens", CONFIG, "looked back at by a scan and its draws, computed once"),
        Assumption("padding", 1.05, "times", ASSUMED, "batches are sorted by length"),
        Assumption("call_tokens", 25.0, "tokens", ASSUMED, "e(c, r) in front of a scored text"),
        Assumption("ingest_ms", 0.025, "ms CPU", MEASURED, f"a document, one process; {_C4}"),
        Assumption("assemble_ms", 0.055, "ms CPU", MEASURED, f"a document, all tools; {_STUB}"),
        Assumption("mfu", 0.4, SHARE, ASSUMED, "of the card's bf16 rate in scan and scoring"),
        Assumption("bandwidth_share", 0.6, SHARE, ASSUMED, "of its memory's rate while calls are drawn"),
        Assumption("decode_rows", 128.0, "rows", ASSUMED, "draws that are continued together"),
        Assumption("gpu_busy_share", 0.93, SHARE, MEASURED, "python benchmarks/gpu_wait.py"),
        Assumption("cores_per_gpu", 8.0, "cores", ASSUMED, "beside each card, as cloud machines have them"),
        Assumption("cpu_gflops", 143.0, "GFLOP/s", MEASURED, "a core: benchmarks/lm_engine.py"),
        Assumption("cpu_mfu", 0.59, SHARE, MEASURED, "python benchmarks/lm_engine.py"),
        Assumption("cpu_price", 0.04, "per core-hour", ASSUMED, "a virtual core of a general-purpose cloud machine"),
        # Of the finetuning.
        Assumption("steps", 2000.0, "steps", PAPER, _APP_B),
        Assumption("batch", 128.0, "texts", PAPER, _APP_B),
        Assumption("sequence_length", 1024.0, "tokens", PAPER, _APP_B),
        Assumption("evaluate_every", 500.0, "steps", PAPER, _APP_B),
        Assumption("dev_documents", 1000.0, "documents", PAPER, _APP_B),
        Assumption("training_passes", 4.0, "forward passes", CONFIG, "forward, backward, activations again"),
        Assumption("training_mfu", 0.35, SHARE, ASSUMED, "of the card's bf16 rate; ZeRO-3"),
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


def parse(texts: Iterable[str]) -> dict[str, float]:
    """Parse what `--assume` was given: `name=value`, several of them with commas between.

    Raises:
        UsageError: a part has another form, or its value is no number that a cost could be computed from.
    """
    given: dict[str, float] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, equals, text = part.partition("=")
        try:
            value = float(text) if equals else math.nan
        except ValueError:
            value = math.nan
        if not name.strip() or not math.isfinite(value):
            raise UsageError(f"--assume {part}: write name=number, e.g. --assume calculator.kept_share=0.1")
        if value < 0:
            raise UsageError(f"--assume {part}: no assumption is negative")
        given[name.strip()] = value
    return given


class Assumptions:
    """The assumptions of one plan, in the order in which they were first used.

    Args:
        given: by name, values that replace all others.
    """

    def __init__(self, given: Mapping[str, float]) -> None:
        self.given = given
        self.lines: dict[str, Assumption] = {}  # those that were used
        self._known = set(DEFAULTS)

    def add(self, line: Assumption) -> float:
        """Add a line, unless there is one of its name; return the value that counts.

        Raises:
            UsageError: the value is outside its bounds.
        """
        name = line.name
        if name not in self.lines:
            if name in self.given:
                source = f"instead of {line.value:,.6g}, {line.origin}"
                line = replace(line, value=self.given[name], origin=GIVEN, source=source)
            if line.unit == SHARE and line.value > 1:
                raise UsageError(f"{name} is a share and lies in [0, 1], got {line.value:,.6g}")
            positive = name.rpartition(".")[2] in _POSITIVE
            if line.value < 0 or (positive and line.value == 0):
                raise UsageError(f"{name} must be {'positive' if positive else 'at least 0'}, got {line.value:,.6g}")
            self.lines[name] = line
        return self.lines[name].value

    def single(self, name: str) -> float:
        """Add the default of a name of which there is one for the whole run; return the value that counts."""
        return self.add(DEFAULTS[name])

    def of_tool(self, tool: str, name: str, measured: float | None, source: str) -> float:
        """Add a figure that may differ from one tool to the next; return the value that counts.

        The tool has a line of its own, `tool.name`, if it was given or measured; else all tools share one.
        """
        own = f"{tool}.{name}"
        default = DEFAULTS.get(own, DEFAULTS[name])
        self._known.add(own)
        if measured is not None and name not in self.given:
            return self.add(Assumption(own, measured, default.unit, MEASURED, source))
        if own in self.given:
            return self.add(replace(default, name=own))
        return self.add(DEFAULTS[name] if name in self.given else default)

    def check(self) -> None:
        """Check that every value that was given has a place in the plan.

        Raises:
            UnknownNameError: one has not.
        """
        known = self.lines.keys() | self._known
        for name in self.given:
            if name not in known:
                raise UnknownNameError("assumption", name, known)
