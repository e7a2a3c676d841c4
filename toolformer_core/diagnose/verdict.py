"""The verdict on one tool: which step of the pipeline fails first, and what to do about it.

Each step has one measure and a minimum; the first one that falls short is named, because later steps depend on it.
Tokenizer and prompt are only inspected, so they are not blamed if the steps that depend on them work well, unless a
call cannot be written at all. Imitating means copying from earlier text, so if no response helps at all, copying is
named. The minimums are low on purpose: the method can work if a step passes one call in five.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from toolformer_core.diagnose.figures import Figures

# Step -> the least measure, in the order of the pipeline, with what is measured, and why this minimum.
_LEAST: Mapping[str, float] = {
    "tokenizer": 0.5,  # share of gold positions at which a token starts: none is drawn at others; half is a coin toss
    # share of ln V saved on plain text: random weights save nothing; names that the model never read save little
    "language": 0.1,
    "prompt": 1,  # demonstrations: without any there is nothing to imitate; the paper uses three to five
    "position": 0.2,  # share of gold positions at which calls are drawn: a fifth of a large corpus is still large
    "imitation": 0.15,  # share of those with a right call among their samples: as above, and each has several samples
    "tool": 0.5,  # share of gold calls with a response: with less, tool and texts are not about the same things
    # share of gold calls whose response lowers the loss by 0.1 nats: near zero for a model that cannot use responses
    "copying": 0.25,
    "discrimination": 0.7,  # share of gold calls that gain more than with a wrong response: 0.5 is chance
    # share of gold calls that reach tau_f: with position and imitation at their minimum, one gold call in 300 is kept
    "threshold": 0.1,
}
STEPS = tuple(_LEAST)
_INSPECTED = ("tokenizer", "prompt")  # inspected, not tried out: see the module
_DEPENDENT = ("position", "imitation")  # depend on tokenizer, prompt and copying
_WELL = 0.5  # if they reach this, the tokenizer and a prompt without demonstrations are not blamed
_REQUIRED = ("position", "imitation", "tool", "copying", "threshold")  # must be measured for a positive verdict
_INERT = 0.05  # if responses help fewer gold calls than this, the model does not copy at all


@dataclass(frozen=True, slots=True)
class Check:
    step: str
    passed: bool | None  # None: it could not be measured
    measured: float | None
    least: float
    reference: float | None  # the embedded model's measure
    description: str  # the figures in words


@dataclass(frozen=True, slots=True)
class Verdict:
    tool: str
    teachable: bool
    step: str  # the step that fails; "" if none does
    description: str
    suggestion: str
    checks: tuple[Check, ...]


def judge(figures: Figures, reference: Mapping[str, float | None] | None = None) -> Verdict:
    """Judge one tool's figures; the embedded model's, by step, are shown for comparison, no verdict depends on them."""
    measures = _measures(figures)
    checks = []
    for step, least in _LEAST.items():
        measured = measures[step]
        passed = False if figures.faults.get(step) else None if measured is None else measured >= least
        description = figures.faults.get(step) or _description(step, figures)
        checks.append(Check(step, passed, measured, least, (reference or {}).get(step), description))
    failed = [check for check in checks if check.passed is False]
    failed = failed or [check for check in checks if check.passed is None and check.step in _REQUIRED]
    if min(measures[step] or 0.0 for step in _DEPENDENT) >= _WELL and "tokenizer" not in figures.faults:
        failed = [check for check in failed if check.step not in _INSPECTED]
    if not failed:
        return Verdict(figures.tool, True, "", _summary(figures), "", tuple(checks))
    first = failed[0]
    if first.step in _DEPENDENT and (figures.filter.kinds["gold"].lowers or 0.0) < _INERT:
        first = next((check for check in failed if check.step == "copying" and check.measured is not None), first)
    if first.step == "imitation":  # if the tool does not answer, no call can be recognised as being as good
        first = next((check for check in failed if check.step == "tool"), first)
    return Verdict(figures.tool, False, first.step, first.description, _suggestion(first.step, figures), tuple(checks))


def _measures(f: Figures) -> dict[str, float | None]:
    return {
        "tokenizer": f.structure.place_alone,
        "language": None if f.structure.loss is None else 1 - f.structure.loss / math.log(f.structure.vocabulary),
        "prompt": f.structure.demonstrations,
        "position": f.position.reached,
        "imitation": f.imitation.places_right,
        "tool": f.use.gold_answered,
        "copying": f.filter.kinds["gold"].lowers,
        "discrimination": f.filter.over_wrong,
        "threshold": f.filter.reached,
    }


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _nats(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


def _description(step: str, f: Figures) -> str:
    s, p, i, g = f.structure, f.position, f.imitation, f.filter
    gold, wrong, other = (g.kinds[kind] for kind in ("gold", "wrong", "unrelated"))
    match step:
        case "tokenizer":
            return f"a token starts at {_percent(s.place_alone)} of the gold positions"
        case "language" if s.loss is None:
            return "no token could be predicted"
        case "language":
            guessing = f"guessing among {s.vocabulary:,} tokens is {math.log(s.vocabulary):.2f}"
            return f"{s.loss:.2f} nats per token of plain text; {guessing}"
        case "prompt":
            shown = f"{s.demonstrations} demonstration{'' if s.demonstrations == 1 else 's'}"
            return f"{shown}, {s.prompt_tokens} of {s.context:,} tokens of context"
        case "position" if not p.gold:
            return "no position was scanned"
        case "position":
            return (
                f'calls are drawn at {_percent(p.reached)} of {p.gold} gold positions: p(" [") is above tau_s = '
                f"{p.tau_s:g} at {_percent(p.above_tau_s)} (median {p.p:.2g}), and {_percent(p.in_top_k)} are among "
                f"the k = {p.top_k} most likely (median rank {p.rank:g}; a text has {p.positions:.0f} positions on "
                "average)"
            )
        case "imitation" if not i.samples:
            return "nothing was drawn"
        case "imitation" if not i.at_gold:
            elsewhere = f"elsewhere {_percent(i.ok)} of {i.samples} samples are calls of the tool"
            return f"nothing was drawn at gold positions; {elsewhere}"
        case "imitation":
            return (
                f"of {i.at_gold} samples at gold positions {_percent(i.well_formed)} are calls of the tool "
                f"({_percent(i.wrong_tool)} of another tool, {_percent(i.unterminated)} never end, "
                f"{_percent(i.unparsable)} do not parse), {_percent(i.right)} have the right input and "
                f"{_percent(i.as_good)} get the right response; {_percent(i.places_right)} of the positions have such "
                "a draw"
            )
        case "tool":
            failures = ", ".join(f"{reason} {n}" for reason, n in f.use.failures.items())
            return (
                f"{_percent(f.use.gold_answered)} of the gold inputs and {_percent(f.use.drawn_answered)} of the drawn "
                f"inputs get a response" + (f" (failures: {failures})" if failures else "")
            )
        case "discrimination" if g.over_wrong is None:
            return "no wrong response to compare with"
        case "discrimination":
            return (
                f"the right response gains more than a wrong one in {_percent(g.over_wrong)} of the gold calls (L- - "
                f"L+ is {_nats(gold.mean)} for right, {_nats(wrong.mean)} for wrong, {_nats(other.mean)} for unrelated "
                "calls)"
            )
        case _ if not gold.gains:
            return "no gold call could be scored"
        case "copying":
            return (
                f"the right response lowers the loss by 0.1 nats or more in {_percent(gold.lowers)} of "
                f"{len(gold.gains)} gold calls (L- - L+ is {_nats(gold.mean)} on average; L- is the loss without a "
                f"call in {_percent(gold.plain_decides)})"
            )
    return (  # the threshold
        f"{_percent(g.reached)} of the gold calls reach tau_f = {g.tau_f:g}; the best F1 is {g.best_f1:.2f} at "
        f"{g.best_tau_f:.2f}, and {g.tau_f_keeping:.2f} keeps 60 %"
    )


def _summary(f: Figures) -> str:
    kept = f.kept
    return (
        f"{kept.calls} calls are kept at tau_f = {f.filter.tau_f:g}; {_percent(kept.precision_anywhere)} of them are "
        f"right ({_percent(kept.precision)} at the right word, too), and {_percent(kept.recall)} of the gold "
        "calls are found"
    )


_WITH_FAULT = {
    "tokenizer": "The tokenizer must preserve calls: name, brackets and arrow. Remove what changes or drops them "
    "(normalizers, lower-casing), or use a model with another tokenizer.",
    "prompt": "Use a shorter prompt (--prompts), or a model with a longer context.",
}
_SUGGESTIONS = {
    "tokenizer": "Calls are inserted in front of a space, but this tokenizer rarely starts a token there. If the "
    "positions are your own (--gold), check first that each is the position of a space. Otherwise use another model.",
    "language": "The model cannot predict these texts. Check that the checkpoint is complete, that the tokenizer "
    "belongs to it, and that it was trained on English; nothing else matters before that.",
    "prompt": "Show the model what to do: three to five texts, each first without and then with a call, as in the "
    "shipped prompts (--prompts).",
    "tool": "Try the tool by hand (toolformer tools test). If it reads your own --passages or --translator, leave them "
    "out here, because they do not cover these texts.",
    "copying": "The model does not use earlier text, which no threshold can change. Use a larger model or one trained "
    "longer; or let a stronger model annotate, and finetune this one on its C*.",
    "discrimination": "Any response helps, right or wrong, so the filter would keep noise. Use a larger model for "
    "scoring, and look at the gains before raising tau_f.",
}
_MALFORMED = {
    "wrong_tool": "The model writes other tools' names: use one name throughout the prompt, and no other brackets.",
    "unterminated": "The model does not end its calls: shorten the inputs in the demonstrations.",
    "unparsable": "The model's brackets are not calls, so it does not follow the demonstrations: use a larger model.",
}


def _suggestion(step: str, f: Figures) -> str:
    match step:
        case "position":
            return _suggest_position(f)
        case "imitation":
            return _suggest_imitation(f)
        case "threshold":
            return _suggest_threshold(f)
    return _WITH_FAULT.get(step, _SUGGESTIONS[step]) if step in f.faults else _SUGGESTIONS[step]


def _suggest_position(f: Figures) -> str:
    p = f.position
    if not p.gold or p.reached is None:
        return "Nothing could be scanned; see the steps before."
    advice = []
    if (p.above_tau_s or 0) < 0.5 and p.tau_s_for_half:
        advice.append(f"--tau-s {_round_down(p.tau_s_for_half):g} would let half of the gold positions through")
    if (p.in_top_k or 0) < 0.5 and p.rank_for_half and p.positions and p.rank_for_half < 0.5 * p.positions:
        advice.append(f"--top-k {p.rank_for_half} would reach half of them")
    if advice:
        return "; ".join(advice) + '; demonstrations that are more similar to your texts raise p(" ["), too.'
    return (
        "The model does not see where calls belong: gold positions are no more likely than others. Make the "
        "demonstrations more similar to your texts, or use a larger model."
    )


def _round_down(value: float) -> float:
    """Round down to two significant digits, so that the value itself is above the result."""
    if not value > 0:
        return 0.0
    below = value * (1 - 1e-9)  # a value that is already round must be above the result, too
    unit: float = 10.0 ** (math.floor(math.log10(below)) - 1)
    return float(f"{math.floor(below / unit) * unit:.2g}")


def _suggest_imitation(f: Figures) -> str:
    i = f.imitation
    if not i.at_gold:
        return "Nothing was drawn at gold positions: see the step before."
    if i.stuck_after:
        return (
            f'The model writes "{i.stuck_after}" of the name and then something else: the next token of the name may '
            "be so rare in its pretraining that it is not copied. Give the tool another name (in TOOL_NAMES, its class "
            "and its prompt)."
        )
    if (i.well_formed or 0.0) < 0.5:
        return _MALFORMED[max(_MALFORMED, key=lambda name: getattr(i, name) or 0.0)]
    return (
        "The form is right, but the input is not: add demonstrations worded like your texts, draw more (--samples), or "
        "use a larger model."
    )


def _suggest_threshold(f: Figures) -> str:
    g = f.filter
    if g.best_tau_f is None or g.best_f1 is None or g.tau_f_keeping is None:
        return "Nothing could be scored; see the steps before."
    if g.best_tau_f <= 0:
        return "Even the best threshold is below zero, so responses hardly help: use a larger model."
    best, keeping = _round_down(g.best_tau_f), _round_down(g.tau_f_keeping)
    return (
        f"The filter works, but tau_f is above what this model reaches: --tau-f {f.tool}={best:g} separates right from "
        f"wrong best (F1 {g.best_f1:.2f}), and {f.tool}={keeping:g} keeps 60 % of the right calls."
    )
