"""Notes for the user: before a build, on settings that are easily overlooked; after one, why it kept nothing."""

import math
import shlex
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from flows.build_dataset.parameters import BuildParameters
from flows.report.tables import counted
from tasks.specs.build_spec import BuildSpec
from toolformer_core.annotate.ingest import other_files
from toolformer_core.config import CHAIN_STARTS
from toolformer_core.embedded import CORPUS
from toolformer_core.folders import not_a_file
from toolformer_core.lm.reference import ModelRef
from warehouse.queries import CallInContext
from warehouse.queries.builds import StageBalance

_LISTED = 3  # files that are listed by name; the others are counted


def notes_on_build(p: BuildParameters) -> list[str]:
    """Return notes on files of the corpus that are not read, and on tools that answer from invented data."""
    notes = []
    others = other_files(p.corpus)
    flaws = {file: flaw for file in others if (flaw := not_a_file(file))}
    kinds = {file: file.suffix.lower() or "no extension" for file in others if file not in flaws}
    unread = {"files of the corpus are of other kinds": kinds, "names in the corpus are no files": flaws}
    for what, entries in unread.items():
        if entries:
            counts = counted(dict(sorted(Counter(entries.values()).items(), key=lambda kind: (-kind[1], kind[0]))))
            names = ", ".join(file.relative_to(p.corpus).as_posix() for file in [*entries][:_LISTED])
            more = f" and {len(entries) - _LISTED:,} more" if len(entries) > _LISTED else ""
            notes.append(f"{len(entries):,} {what} and are not read ({counts}): {names}{more}")
    named = dict.fromkeys(name.strip().lower() for name in (*p.tools, *p.tool))
    without = [*(["wikisearch", "qa"] if p.passages is None else []), *(["mt"] if p.translator is None else [])]
    invented = [tool for tool in named if tool in without]
    if invented and Path(p.corpus).absolute() != CORPUS:
        notes.append(
            f"answers of {', '.join(invented)} come from the program's small invented world, which knows nothing of "
            "your corpus: name your own data with --passages (wikisearch, qa) and --translator (mt)"
        )
    return notes


def notes_on_chains(spec: BuildSpec, documents: int) -> list[str]:
    """Return what chains cost at most, in texts read and calls drawn; nothing where there are none."""
    if spec.chains.depth == 1:
        return []
    starts = documents * CHAIN_STARTS
    drawn = starts * sum(config.samples for config in spec.sample.values())
    return [
        f"--chain-depth {spec.chains.depth}: at each depth from the second on at most {CHAIN_STARTS} starts in each of "
        f"{documents:,} documents, so {starts * len(spec.tools):,} texts read and {drawn:,} calls drawn by "
        f"{len(spec.tools)} tools"
    ]


def notes_on_training(model: str, annotated_by: str) -> list[str]:
    """Return a note if a model is finetuned on calls that another model sampled and scored."""
    if _identity(model) == _identity(annotated_by):
        return []
    return [
        f"the calls of this dataset were sampled and scored by {annotated_by}, and {model} is finetuned on them: what "
        "helps the one need not help the other; build with --model to annotate with the model that is finetuned"
    ]


def _identity(model: str) -> str:
    named = ModelRef.of(model)
    return str(named.path.resolve()) if named.kind in ("folder", "gguf") else model


_REASONS = 2  # reasons listed for the step that kept no rows
# `diagnose` takes them as `build` does.
_OPTIONS = {"tau_s", "top_k", "samples", "prompts", "passages", "qa_reader", "translator"}


def nothing_kept(
    balances: Sequence[StageBalance],
    best: Sequence[CallInContext],
    thresholds: Mapping[str, float],
    parameters: BuildParameters,
    data: str,
) -> list[str]:
    """Return lines about a C* without examples: that it has none, why, and the command that helps, ready to paste."""
    scored = sum(b.kept for b in balances if (b.stage, b.unit) == ("score", "calls"))
    below = sum(b.dropped.get("below_threshold", 0) for b in balances if (b.stage, b.unit) == ("assemble", "calls"))
    reached = f"reached its tool's tau_f ({', '.join(f'{tool} {tau:g}' for tool, tau in thresholds.items())}; in nats)"
    why = f"no call {reached}" if below == scored else f"no call that {reached} may be kept"
    summary = f"C* is empty: {why if scored else 'no call was scored'}."
    command = _command(best, thresholds, parameters, data)
    return [summary, *filter(None, [_reason(balances)]), f"Next: {command}"]


def _reason(balances: Sequence[StageBalance]) -> str:
    """Name the main reasons at the step that kept no rows, and an earlier reason that cost more rows, if any."""
    rows_in, kept = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    reasons: dict[tuple[str, str], Counter[tuple[str, str]]] = defaultdict(Counter)
    for b in balances:
        step = (b.stage, b.unit)
        rows_in[step] += b.rows_in
        kept[step] += b.kept
        for reason, n in (*b.dropped.items(), *b.failed.items()):
            reasons[step][reason, b.tool] += n
    last = next((step for step in reasons if rows_in[step] and not kept[step] and reasons[step]), None)
    if last is None:
        return ""
    main = " and ".join(_reason_text(last, *one) for one in reasons[last].most_common(_REASONS))
    text = f"Main reason: {main}, of {rows_in[last]:,} {last[1]}."
    before = takewhile(lambda step: step != last, reasons)
    earlier = [(n, step, why) for step in before for why, n in reasons[step].items()]
    n, step, why = max(earlier, default=(0, last, ("", "")), key=lambda one: one[0])
    if n > reasons[last].most_common(1)[0][1]:
        text += f" Most rows were lost before: {_reason_text(step, why, n)}, of {rows_in[step]:,} {step[1]}."
    return text


def _reason_text(step: tuple[str, str], why: tuple[str, str], n: int) -> str:
    reason, tool = why
    return f"{reason} {n:,} ({' '.join(filter(None, (step[0], tool)))})"


def _command(best: Sequence[CallInContext], thresholds: Mapping[str, float], p: BuildParameters, data: str) -> str:
    """Return `what-if` where a lower threshold would keep calls that help, else `diagnose`."""
    reachable = {s.tool: s.gain for s in reversed(best) if _floor(s.gain) > 0 and s.gain < thresholds.get(s.tool, 0.0)}
    if reachable:
        tau = ",".join(f"{tool}={_floor(gain):g}" for tool, gain in sorted(reachable.items()))
        return shlex.join(["toolformer", "what-if", "--tau", tau, "--data", data])
    parts = ["toolformer", "diagnose", "--model", p.model]
    parts += ["--tools", ",".join(p.tools)] if p.tools else []
    parts += [word for reference in p.tool for word in ("--tool", reference)]
    for name, value in p.model_dump(include=_OPTIONS, exclude_none=True).items():
        parts += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(parts)


def _floor(gain: float) -> float:
    """Round down to hundredths of a nat, so that a threshold there keeps the call."""
    return math.floor(gain * 100) / 100
