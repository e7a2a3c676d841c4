"""Chains: where one call's response is not enough, a further call is drawn after it. Beyond the paper (its §7).

    [QA(When was Velden founded?) -> 1820] [Calculator(1820 + 45) -> 1865] 1865

The calls of a chain stand at one position i. The second, c_2, is drawn from p(. | P(x), x_1:i-1, e(c_1, r_1), " ["),
with a prompt P of its own tool that shows calls in chains, the third after both, and so on. The calls after which
others are drawn, the *starts*, are those of a document that leave most to gain; none that leaves nothing or looked
ahead. The outcomes of a draw are those of `sample`, `repeated` (the call stands in front of it already) and `too_long`
(text and calls leave no room in the model's context). No threshold on p(" [") applies; `rank` is the start's number.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count

from toolformer_core.annotate.call_filter import looked_ahead
from toolformer_core.annotate.sample import merged
from toolformer_core.config import MAX_CALL_TOKENS, SampleConfig
from toolformer_core.lm.base import Draw, DrawRequest, Insertion, LanguageModel
from toolformer_core.records import AnsweredCall, DrawnCall, Prompt, ScoredCall, numbers_of
from toolformer_core.syntax import written_calls

REPEATED, TOO_LONG = "repeated", "too_long"


def left_to_gain(call: ScoredCall) -> float:
    """Return what a call drawn after this one can gain at most, in nats: no loss is below 0.  NaN: not measured"""
    losses = [call.loss_plain, call.loss_response, *([] if call.loss_shorter is None else [call.loss_shorter])]
    return math.nan if any(map(math.isnan, losses)) else min(losses)


def starts_of(scored: Iterable[ScoredCall], most: int) -> dict[str, list[ScoredCall]]:
    """Return at most `most` calls of each document, of one depth, after which others are drawn; most to gain first."""
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
    """Return samples of one tool's calls after executed ones, equal ones merged, in the order of the starts.

    `names` has the name in calls of each tool key. `starts` are those that `starts_of` returned, document by document;
    all are held in memory at once. Of `config`, k and tau_s are not used.
    """
    chosen = list(starts)
    insertions = [Insertion(texts[c.doc_id], c.position, written_calls(map(_link, c.chain), names)) for c in chosen]
    ranks: defaultdict[str, Iterator[int]] = defaultdict(count)  # by document
    undrawn = [_undrawn(call, tool, next(ranks[call.doc_id]), config.samples) for call in chosen]
    drawn: dict[int, list[DrawnCall]] = {}
    name = names[tool]
    begin = f"{name}(" if config.draw_form == "forced" else ""
    for scan in lm.scan(prompt, insertions) if insertions else ():
        log_ps = {number: float(log_probs[0]) for number, log_probs in zip(scan.texts, scan.log_probs, strict=True)}
        requests = [
            DrawRequest(number, chosen[number].position, seed)
            for number in log_ps
            for seed in _seeds(config.seed, tool, chosen[number], config.samples)
        ]
        temperature = config.temperature
        samples = scan.draw(requests, max_tokens=MAX_CALL_TOKENS, temperature=temperature, name=name, begin=begin)
        for i, (number, log_p) in enumerate(log_ps.items()):
            own = samples[i * config.samples : (i + 1) * config.samples]
            drawn[number] = _with_samples(replace(undrawn[number], log_p=log_p), own, name)
    return [call for number, one in enumerate(undrawn) for call in drawn.get(number, [one])]


def _link(call: AnsweredCall) -> tuple[str, str, str]:
    return call.tool, call.input, call.response


def _seeds(seed: int, tool: str, start: ScoredCall, samples: int) -> list[int]:
    links = chain.from_iterable(map(_link, start.chain))
    return numbers_of("chain", str(seed), start.doc_id, tool, str(start.position), *links, count=samples)


def _undrawn(start: ScoredCall, tool: str, rank: int, samples: int) -> DrawnCall:
    place = (start.doc_id, tool, start.position, -math.inf, rank)
    return DrawnCall(*place, "", TOO_LONG, "", samples, start.window_end, preceding_calls=start.chain)


def _with_samples(row: DrawnCall, samples: Sequence[Draw], name: str) -> list[DrawnCall]:
    before = {(one.tool, one.input) for one in row.preceding_calls}
    return [
        replace(one, outcome=REPEATED, input="") if one.outcome == "ok" and (one.tool, one.input) in before else one
        for one in merged(row, samples, name)
    ]
