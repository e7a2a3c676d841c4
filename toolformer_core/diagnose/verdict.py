"""The verdict on one tool: which step of the pipeline stands in the way, and what to do about it.

Each step has one measure and the least that it needs. They are checked in the order in which the pipeline runs, and the
first that falls short is named: what comes after it has no chance to show itself. Two exceptions. Tokenizer and prompt
are only looked at, so they are not blamed where the steps that rest on them do well all the same, unless a call cannot
be written at all. And to imitate is to copy from what stands before: where no response whatever helps, copying is named
as the cause of what fails before it.

The least figures are low on purpose. The method lives on large corpora and throws most calls away: a step that lets one
in five through can be taught with, one that lets nothing through cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from toolformer_core.diagnose.figures import Figures, named

__all__ = ["LEAST", "STEPS", "Check", "Verdict", "judge"]

# | step           | measured is                                                | and has to be at least, because |
LEAST: Mapping[str, float] = {
    # share of calls that are tokens of their own: of merged ones p(" [") says nothing; half is a coin's throw
    "tokenizer": 0.5,
    # share of ln V saved on plain text: random weights save nothing; names that nobody has read save little
    "language": 0.1,
    # demonstrations: with none there is nothing to imitate; the paper gives three to five
    "prompt": 1,
    # share of gold positions that are drawn at: a fifth of a large corpus is a large corpus
    "position": 0.2,
    # share of those with a right call among their draws: as above, and each is drawn at several times
    "imitation": 0.15,
    # share of gold calls with a response: less, and tool and texts are not about the same things
    "tool": 0.5,
    # share of gold calls whose response lowers the loss by 0.1 nats: a model that cannot use it is near zero
    "copying": 0.25,
    # share of gold calls that gain more than with a wrong response: 0.5 is chance
    "discrimination": 0.7,
    # share of gold calls that reach tau_f: with position and imitation at their least, one gold call in 300 is kept
    "threshold": 0.1,
}
STEPS = tuple(LEAST)
_LOOKED_AT = ("tokenizer", "prompt")  # not tried: see above
_RESTING = ("position", "imitation")  # on tokenizer and prompt, and on copying
_WELL = 0.5  # what these have to reach in spite of a merged " [" or a prompt that shows nothing
_NEEDED = ("position", "imitation", "tool", "copying", "threshold")  # no verdict without having measured them
_INERT = 0.05  # under this share of gold calls that are helped, the model does not copy at all


@dataclass(frozen=True, slots=True)
class Check:
    """One step."""

    step: str
    passed: bool | None  # None: it could not be measured
    measured: float | None
    least: float
    reference: float | None  # the embedded model's
    told: str  # the figures behind it, in words


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a model can teach itself a tool."""

    tool: str
    teachable: bool
    step: str  # that stands in the way; "" if none
    told: str
    suggestion: str
    checks: tuple[Check, ...]


def judge(figures: Figures, reference: Mapping[str, float | None] | None = None) -> Verdict:
    """Judge one tool's figures.

    Args:
        figures: of the model.
        reference: what was measured of the embedded model, by step; for comparison only, no verdict depends on it.
    """
    checks = tuple(_check(step, figures, (reference or {}).get(step)) for step in STEPS)
    failed = [check for check in checks if check.passed is False]
    failed = failed or [check for check in checks if check.passed is None and check.step in _NEEDED]
    resting = [check.measured or 0.0 for check in checks if check.step in _RESTING]
    if min(resting) >= _WELL and not figures.tokenizer_fault:
        failed = [check for check in failed if check.step not in _LOOKED_AT]
    if not failed:
        return Verdict(figures.tool, True, "", _praise(figures), "", checks)
    first = failed[0]
    if first.step in _RESTING and (figures.filter.kinds["gold"].lowers or 0.0) < _INERT:
        first = next((check for check in failed if check.step == "copying" and check.measured is not None), first)
    if first.step == "imitation":  # as good a call as the gold one cannot be told where the tool answers neither
        first = next((check for check in failed if check.step == "tool"), first)
    return Verdict(figures.tool, False, first.step, first.told, _suggestion(first.step, figures), checks)


def _check(step: str, figures: Figures, reference: float | None) -> Check:
    measured = _MEASURES[step](figures)
    passed = None if measured is None else measured >= LEAST[step]
    faults = {"tokenizer": figures.tokenizer_fault, "prompt": figures.prompt_fault, "tool": figures.tool_fault}
    if faults.get(step):
        passed = False
    return Check(step, passed, measured, LEAST[step], reference, _TOLD[step](figures))


# --- what is measured -------------------------------------------------------------------------------------------------


def _tokenizer(f: Figures) -> float | None:
    s = f.structure
    return None if s is None else min(s.trigger_alone, s.arrow_alone, s.place_alone)


def _language(f: Figures) -> float | None:
    s = f.structure
    return None if s is None or s.loss is None else 1 - s.loss / math.log(s.vocabulary)


def _prompt(f: Figures) -> float | None:
    return None if f.structure is None else f.structure.demonstrations


_MEASURES: Mapping[str, Callable[[Figures], float | None]] = {
    "tokenizer": _tokenizer,
    "language": _language,
    "prompt": _prompt,
    "position": lambda f: f.position.reached,
    "imitation": lambda f: f.imitation.places_right,
    "tool": lambda f: f.use.gold_answered,
    "copying": lambda f: f.filter.kinds["gold"].lowers,
    "discrimination": lambda f: f.filter.over_wrong,
    "threshold": lambda f: f.filter.reached,
}


# --- in words ---------------------------------------------------------------------------------------------------------


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _nats(value: float | None) -> str:
    return "-" if value is None else f"{value:+.2f}"


def _told_tokenizer(f: Figures) -> str:
    if f.tokenizer_fault:
        return f.tokenizer_fault
    s = f.structure
    if s is None:
        return "not looked at"
    return (
        f'" [" is a token of its own in {_percent(s.trigger_alone)} of the calls, "->" ends one in '
        f"{_percent(s.arrow_alone)}, a token starts at {_percent(s.place_alone)} of the gold positions"
    )


def _told_language(f: Figures) -> str:
    s = f.structure
    if s is None or s.loss is None:
        return "not looked at"
    guess = math.log(s.vocabulary)
    return f"{s.loss:.2f} nats per token of plain text; guessing among {s.vocabulary:,} tokens is {guess:.2f}"


def _told_prompt(f: Figures) -> str:
    if f.prompt_fault:
        return f.prompt_fault
    s = f.structure
    if s is None:
        return "not looked at"
    plural = "" if s.demonstrations == 1 else "s"
    return f"{s.demonstrations} demonstration{plural}, {s.prompt_tokens} of {s.context:,} tokens of context"


def _told_position(f: Figures) -> str:
    p = f.position
    if not p.gold:
        return "no position was scanned"
    return (
        f'calls are drawn at {_percent(p.reached)} of {p.gold} gold positions: p(" [") is above tau_s = {p.tau_s:g} at '
        f"{_percent(p.above_tau_s)} (median {p.p:.2g}), {_percent(p.in_top_k)} are among the k = {p.top_k} likeliest "
        f"(median rank {p.rank:g}; a text has {p.positions:.0f} places on average)"
    )


def _told_imitation(f: Figures) -> str:
    i = f.imitation
    if not i.draws:
        return "nothing was drawn"
    if not i.at_gold:
        return (
            f"nothing was drawn at gold positions; elsewhere {_percent(i.ok)} of {i.draws} draws are calls of the tool"
        )
    return (
        f"of {i.at_gold} draws at gold positions {_percent(i.well_formed)} are calls of the tool "
        f"({_percent(i.wrong_tool)} of another, {_percent(i.unterminated)} never end, {_percent(i.unparsable)} do not "
        f"parse), {_percent(i.right)} have the right input and {_percent(i.as_good)} get the right response; "
        f"{_percent(i.places_right)} of the positions got one"
    )


def _told_tool(f: Figures) -> str:
    if f.tool_fault:
        return f.tool_fault
    failures = ", ".join(f"{reason} {n}" for reason, n in f.use.failures.items())
    return (
        f"{_percent(f.use.gold_answered)} of the gold inputs and {_percent(f.use.drawn_answered)} of those drawn get a "
        f"response" + (f" (failures: {failures})" if failures else "")
    )


def _told_copying(f: Figures) -> str:
    gold = f.filter.kinds["gold"]
    if not gold.calls:
        return "no gold call could be scored"
    return (
        f"the right response lowers the loss by 0.1 nats and more in {_percent(gold.lowers)} of {gold.calls} gold "
        f"calls (L- - L+ {_nats(gold.mean)} on average; L- is that of no call in {_percent(gold.plain_decides)})"
    )


def _told_discrimination(f: Figures) -> str:
    gold, wrong, other = (f.filter.kinds[kind] for kind in ("gold", "wrong", "unrelated"))
    if f.filter.over_wrong is None:
        return "no wrong response to compare with"
    return (
        f"the right response gains more than a wrong one in {_percent(f.filter.over_wrong)} (L- - L+ "
        f"{_nats(gold.mean)} right, {_nats(wrong.mean)} wrong, {_nats(other.mean)} unrelated)"
    )


def _told_threshold(f: Figures) -> str:
    g = f.filter
    if g.reached is None:
        return "no gold call could be scored"
    return (
        f"{_percent(g.reached)} of the gold calls reach tau_f = {g.tau_f:g}; best F1 {g.best_f1:.2f} at "
        f"{g.best_tau_f:.2f}, and {g.tau_f_keeping:.2f} keeps 60 %"
    )


_TOLD: Mapping[str, Callable[[Figures], str]] = {
    "tokenizer": _told_tokenizer,
    "language": _told_language,
    "prompt": _told_prompt,
    "position": _told_position,
    "imitation": _told_imitation,
    "tool": _told_tool,
    "copying": _told_copying,
    "discrimination": _told_discrimination,
    "threshold": _told_threshold,
}


def _praise(f: Figures) -> str:
    kept = f.kept[named(f.filter.tau_f)]
    return (
        f"{kept.calls} calls kept at tau_f = {f.filter.tau_f:g}, {_percent(kept.precision_anywhere)} of them right "
        f"ones ({_percent(kept.precision_as_good)} also at the right word); "
        f"{_percent(kept.recall)} of the gold calls found"
    )


# --- what to do -------------------------------------------------------------------------------------------------------


def _suggestion(step: str, f: Figures) -> str:
    return {
        "tokenizer": _suggest_tokenizer,
        "language": lambda f: (
            "The weights do not fit these texts: is the checkpoint whole, the tokenizer its own, and "
            "English among what it was trained on? Nothing else matters before that."
        ),
        "prompt": _suggest_prompt,
        "position": _suggest_position,
        "imitation": _suggest_imitation,
        "tool": lambda f: (
            "Try the tool by hand (toolformer tools test). If it reads your own --passages or --phrases, "
            "those do not know what these texts are about: leave them out here."
        ),
        "copying": lambda f: (
            "The model does not use what stands before a text. No threshold mends that: take a larger "
            "model, or one trained longer; or let a stronger model annotate and finetune this one on its C*."
        ),
        "discrimination": lambda f: (
            "Any response helps, right or wrong, so the filter would keep noise: take a larger "
            "model to score with, and look at the pictures before raising tau_f."
        ),
        "threshold": _suggest_threshold,
    }[step](f)


def _suggest_tokenizer(f: Figures) -> str:
    if f.tokenizer_fault:
        return (
            "A call has to survive its tokenizer: name, brackets, arrow. Remove what changes or drops them "
            "(normalizers, lower-casing), or take a model with another tokenizer."
        )
    s = f.structure
    if s is not None and min(s.trigger_alone, s.arrow_alone) >= LEAST["tokenizer"]:
        return (
            "Calls stand in front of a blank; with this tokenizer hardly a token starts at these. Are the positions "
            "your own (--gold)? Then look at those first: each is that of a blank. Otherwise take another model."
        )
    return (
        'The tokenizer merges the brackets or the arrow of a call with what stands beside them, so p(" [") is of a '
        "token that the prompt never shows. Remove such merges and added tokens, or take a model with "
        "another tokenizer."
    )


def _suggest_prompt(f: Figures) -> str:
    if f.prompt_fault:
        return "Use a shorter prompt (--prompts), or a model with a longer context."
    return (
        "Show the model what it is to do: three to five texts, each first without and then with a call, as in the "
        "shipped prompts (--prompts)."
    )


def _suggest_position(f: Figures) -> str:
    p = f.position
    if not p.gold or p.reached is None:
        return "Nothing could be scanned; see the steps before."
    advice = []
    if (p.above_tau_s or 0) < 0.5 and p.tau_s_for_half:
        advice.append(f"--tau-s {_down(p.tau_s_for_half):g} would let half of the gold positions through")
    if (p.in_top_k or 0) < 0.5 and p.rank_for_half and p.positions and p.rank_for_half < 0.5 * p.positions:
        advice.append(f"--top-k {p.rank_for_half} would reach half of them")
    if advice:
        return "; ".join(advice) + '; more alike demonstrations raise p(" [") too.'
    return (
        "The model does not see where a call belongs: gold positions are no likelier than others. Bring demonstrations "
        "closer to your texts, or take a larger model."
    )


def _down(value: float) -> float:
    """Round down to two digits that count, so that the value itself stands above it."""
    if not value > 0:
        return 0.0
    below = value * (1 - 1e-9)  # what is a round number already has to stand above it as well
    unit: float = 10.0 ** (math.floor(math.log10(below)) - 1)
    return float(f"{math.floor(below / unit) * unit:.2g}")


def _suggest_imitation(f: Figures) -> str:
    i = f.imitation
    if not i.at_gold:
        return "Nothing was drawn at gold positions: see the step before."
    reasons = {
        "wrong_tool": "It calls other tools' names: use one name throughout the prompt, and no other brackets in it.",
        "unterminated": "Its calls do not end: shorten the inputs in the demonstrations, or give a call more tokens "
        "(build --max-call-tokens).",
        "unparsable": "What it writes in brackets is no call: it does not follow the demonstrations; take a larger "
        "model.",
    }
    malformed = {name: getattr(i, name) or 0.0 for name in reasons}
    if i.stuck_after:
        return (
            f'It writes "{i.stuck_after}" of the name and then something else: the token that follows may hardly '
            "have occurred in its pretraining, so it is not copied. Give the tool another name "
            "(in TOOL_NAMES, its class and its prompt)."
        )
    if (i.well_formed or 0.0) < 0.5:
        return reasons[max(malformed, key=lambda name: malformed[name])]
    return (
        "The form is right and the input is not: add demonstrations worded like your texts, draw more (--draws), or "
        "take a larger model."
    )


def _suggest_threshold(f: Figures) -> str:
    g = f.filter
    if g.best_tau_f is None or g.best_f1 is None or g.tau_f_keeping is None:
        return "Nothing could be scored; see the steps before."
    if g.best_tau_f <= 0:
        return "Even the best threshold is below zero: the response hardly helps; take a larger model."
    return (
        f"The filter works, but tau_f is above what this model reaches: --tau-f {f.tool}={_down(g.best_tau_f):g} tells "
        f"right from wrong best (F1 {g.best_f1:.2f}), {f.tool}={_down(g.tau_f_keeping):g} keeps 60 % of the right ones."
    )
