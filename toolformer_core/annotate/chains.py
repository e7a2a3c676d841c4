"""Chains: where one call's response is not enough, a further call is drawn after it. Beyond the paper (its §7).

    [QA(When was Velden founded?) -> 1820] [Calculator(1820 + 45) -> 1865] 1865

The calls of a chain stand at one position i. The second, c_2, is drawn from p(. | P(x), x_1:i-1, e(c_1, r_1), " ["),
with a prompt P of its own tool that shows calls in chains (`tool_prompt.chain_prompt_for`), the third after both, and
so on.

A chain must beat all that it begins with: its gain is at most what the losses without its last call leave to be gained,
min(L(eps), L(e(c_1, r_1)), ...). So the calls after which others are drawn, the *starts*, are those of a document that
leave most, and no more of them than the config says.

    | left out of the starts | because                                                                       |
    |------------------------|-------------------------------------------------------------------------------|
    | nothing left           | no call after it could gain anything, or its loss could not be measured      |
    | looked ahead           | the rule for MT (`assemble`) drops it whatever it gains, and so what it begins |

The outcomes of a draw are those of `sample`, and two more:

    | outcome   | because                                                                        |
    |-----------|--------------------------------------------------------------------------------|
    | repeated  | it is a call that stands in front of it already: its response is there         |
    | too_long  | text and calls leave no room in the model's context; nothing was drawn         |

No threshold on p(" [") applies after a call: the number of starts bounds what is drawn. `log_p` is that p(" [") all
the same, and `rank` the number of the start. This module knows no responses of what it draws, and no thresholds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from toolformer_core.annotate.call_filter import looked_ahead
from toolformer_core.annotate.sample import judged
from toolformer_core.config import MAX_CALL_TOKENS, SampleConfig
from toolformer_core.lm.base import Draw, DrawRequest, Insertion, LanguageModel
from toolformer_core.records import Call, DrawnCall, Prompt, ScoredCall, numbers_of
from toolformer_core.syntax import linearize_chain

REPEATED, TOO_LONG = "repeated", "too_long"


def left_to_gain(call: ScoredCall) -> float:
    """Return what a call drawn after this one can gain at most, in nats: no loss is below 0.  NaN: not measured"""
    losses = [call.loss_plain, call.loss_response, *([] if call.loss_shorter is None else [call.loss_shorter])]
    return math.nan if any(map(math.isnan, losses)) else min(losses)


def starts_of(scored: Iterable[ScoredCall], most: int) -> dict[str, list[ScoredCall]]:
    """Return at most `most` calls of each document after which others are drawn, those that leave most to gain first.

    All of the scored calls have one depth.
    """
    by_document: dict[str, list[ScoredCall]] = {}
    for call in scored:
        if left_to_gain(call) > 0 and not looked_ahead(call):
            by_document.setdefault(call.doc_id, []).append(call)
    return {doc_id: sorted(calls, key=_order)[:most] for doc_id, calls in sorted(by_document.items())}


def _order(call: ScoredCall) -> tuple[float, int, int, str, str, str, str]:
    links = str(call.preceding_calls)
    return (-left_to_gain(call), -call.count, call.position, call.tool, call.input, call.response, links)


def extend(
    lm: LanguageModel,
    prompt: Prompt,
    tool: str,
    names: Mapping[str, str],
    texts: Mapping[str, str],
    starts: Iterable[ScoredCall],
    config: SampleConfig,
) -> list[DrawnCall]:
    """Draw calls of one tool after executed ones.

    Args:
        lm: the model that annotates.
        prompt: the tool's prompt for calls in chains.
        tool: key of the tool whose calls are drawn.
        names: the name in calls of each tool key.
        texts: x by document id.
        starts: what `starts_of` returned, of all documents, document by document. All are held in memory at once.
        config: m, temperature, form of the draws, length of a call in tokens, seed; k and tau_s are not used.

    Returns:
        The draws, equal ones merged, in the order of the starts.

    Raises:
        KeyError: a start's document is not among the texts.
    """
    chosen = list(starts)
    insertions = [_insertion(texts[call.doc_id], call, names) for call in chosen]
    undrawn = [_undrawn(call, tool, rank, config.draws) for call, rank in zip(chosen, _ranks(chosen), strict=True)]
    drawn: dict[int, list[DrawnCall]] = {}
    begin = f"{names[tool]}(" if config.draw_form == "forced" else ""
    for scan in lm.scan(prompt, insertions) if insertions else ():
        log_ps = {number: float(log_probs[0]) for number, log_probs in zip(scan.texts, scan.log_probs, strict=True)}
        requests = [
            DrawRequest(number, chosen[number].position, seed)
            for number in log_ps
            for seed in _seeds(config.seed, tool, chosen[number], config.draws)
        ]
        made = scan.draw(
            requests,
            max_tokens=MAX_CALL_TOKENS,
            temperature=config.temperature,
            name=names[tool],
            begin=begin,
        )
        for i, (number, log_p) in enumerate(log_ps.items()):
            own = made[i * config.draws : (i + 1) * config.draws]
            drawn[number] = _merged(own, undrawn[number], names[tool], log_p)
    return [call for number, one in enumerate(undrawn) for call in drawn.get(number, [one])]


def _insertion(text: str, call: ScoredCall, names: Mapping[str, str]) -> Insertion:
    links = [(Call(names.get(one.tool, one.tool), one.input), one.response) for one in call.chain]
    return Insertion(text, call.position, linearize_chain(links))


def _ranks(chosen: Sequence[ScoredCall]) -> list[int]:
    """Return the number of each start within its document."""
    seen: Counter[str] = Counter()
    out = []
    for call in chosen:
        out.append(seen[call.doc_id])
        seen[call.doc_id] += 1
    return out


def _seeds(seed: int, tool: str, start: ScoredCall, draws: int) -> list[int]:
    """Return the 64-bit seeds of the draws after a start; they do not depend on how many there are."""
    links = [part for one in start.chain for part in (one.tool, one.input, one.response)]
    return numbers_of("chain", str(seed), start.doc_id, tool, str(start.position), *links, count=draws)


def _undrawn(start: ScoredCall, tool: str, rank: int, draws: int) -> DrawnCall:
    """Return the row of a start after which there was no room to draw."""
    return DrawnCall(
        doc_id=start.doc_id,
        tool=tool,
        position=start.position,
        log_p=-math.inf,
        rank=rank,
        raw="",
        outcome=TOO_LONG,
        input="",
        count=draws,
        window_end=start.window_end,
        log_p_form=None,
        preceding_calls=start.chain,
    )


def _merged(draws: Sequence[Draw], undrawn: DrawnCall, name: str, log_p: float) -> list[DrawnCall]:
    """Return the draws after one start, equal ones merged, in the order of first appearance."""
    out = []
    for draw, count in Counter(one._replace(log_p_begin=draws[0].log_p_begin) for one in draws).items():
        outcome, input_ = judged(draw, name)
        if outcome == "ok" and any((one.tool, one.input) == (undrawn.tool, input_) for one in undrawn.preceding_calls):
            outcome, input_ = REPEATED, ""
        form = draw.log_p_begin
        out.append(
            replace(undrawn, log_p=log_p, raw=draw.text, outcome=outcome, input=input_, count=count, log_p_form=form)
        )
    return out
