"""Openings in documents of C*: the plain computation, one place at a time, and decoding itself."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from writers import FAMILIES, Double, Late, after, call_edges, writing_lm

from tests.tiny import TEXTS, plain_log_probs, sentencepiece, tiny_lm, tokenizer
from toolformer_core.decode.openings import find_openings, names_of
from toolformer_core.decode.records import GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.decode.trigger import Opening
from toolformer_core.errors import ContextError
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.tokens import tokenize
from toolformer_core.records import Example, InsertedCall

NAMES = {"double": "T", "late": "U"}
K = 150


def example(text: str, *calls: tuple[int, str]) -> Example:
    """The text with these calls, of tools by key at character positions, from left to right."""
    out, inserted, done = "", [], 0
    for position, tool in calls:
        out += text[done:position]
        written = f" [{NAMES[tool]}(7) -> 14]"
        inserted.append(InsertedCall(tool, position, len(out), len(out) + len(written), "7", "14", 1.0))
        out, done = out + written, position
    return Example(text, out + text[done:], tuple(inserted))


EXAMPLES = [
    example(TEXTS[0], (6, "double"), (30, "late")),
    example("x"),
    example(TEXTS[2], (0, "late"), (len(TEXTS[2]), "double")),
    example(TEXTS[3], (8, "double")),
    example(TEXTS[4], (20, "late"), (20, "double")),  # one behind the other
]


def plain_openings(lm: TransformersLM, example: Example, top_k: int) -> list[Opening]:
    """The same by reading the text again for every place and every token behind it."""
    hf_model = lm.hf_model
    (tokens,) = tokenize(hf_model.tokenizer, [example.text])
    ids, cuts = tokens.ids.tolist(), tokens.cuts.tolist()
    places = [
        at
        for at, cut in enumerate(cuts)
        if tokens.starts_character[at] and not any(c.start < cut < c.end for c in example.calls)
    ]
    starts = {at: c.tool for at in places for c in example.calls if c.start == cuts[at]}
    out = []
    for number, at in enumerate(places):
        context, p, inside = [0, *ids[:at]], 0.0, True
        for token in hf_model.trigger:
            scores = plain_log_probs(lm, context)[-1]
            inside &= int((scores > scores[token]).sum()) < top_k
            p += float(scores[token])
            context = [*context, token]
        if inside:
            name = hf_model.tokenizer.decode([int(plain_log_probs(lm, context)[-1].argmax())])
            named = next((key for key, one in NAMES.items() if one == name), "")
            soon = [starts.get(place) for place in places[number + 1 : number + 5]]
            called = starts.get(at, "")
            early = not called and named != "" and named in soon
            out.append(Opening(named, called, float(torch.tensor(p).exp()), early))
    return out


def caller(family: str, coded: Any, **more: int) -> TransformersLM:
    return writing_lm(family, coded, call_edges(coded, arrow="->"), **more)


def same(found: list[Opening], plain: list[Opening]) -> bool:
    assert [o.probability for o in found] == pytest.approx([o.probability for o in plain], rel=1e-3, abs=1e-7)
    return [replace(o, probability=0.0) for o in found] == [replace(o, probability=0.0) for o in plain]


@pytest.mark.parametrize("family", FAMILIES)
def test_openings_in_batches_are_the_plain_computation(family: str) -> None:
    lm = caller(family, tokenizer())
    found = find_openings(lm, EXAMPLES, NAMES, top_k=K)
    assert same(found, [o for e in EXAMPLES for o in plain_openings(lm, e, K)])
    assert len(found) >= 10


def test_a_trigger_of_two_tokens_is_likely_enough_if_both_are() -> None:
    lm = caller("llama", tokenizer(merged_trigger=False))
    found = find_openings(lm, EXAMPLES, NAMES, top_k=200)
    assert same(found, [o for e in EXAMPLES for o in plain_openings(lm, e, 200)])
    assert len(found) >= 10


def test_a_tokenizer_that_puts_spaces_in_front_of_texts() -> None:
    lm = tiny_lm(coded=sentencepiece())  # it names no tool
    found = find_openings(lm, EXAMPLES, NAMES, top_k=K)
    assert same(found, [o for e in EXAMPLES for o in plain_openings(lm, e, K)])
    assert [o.called for o in find_openings(lm, EXAMPLES[:1], NAMES, top_k=10**6) if o.called] == ["double", "late"]


def test_a_batch_is_its_documents_one_by_one() -> None:
    lm, one_by_one = caller("llama", tokenizer()), caller("llama", tokenizer(), token_budget=1)
    alone = [o for e in EXAMPLES for o in find_openings(one_by_one, [e], NAMES, top_k=K)]
    assert same(find_openings(lm, EXAMPLES, NAMES, top_k=K), alone)
    seen: list[tuple[int, int]] = []
    assert same(find_openings(one_by_one, EXAMPLES, NAMES, top_k=K, on_progress=lambda *done: seen.append(done)), alone)
    assert seen == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    assert find_openings(lm, [], {}) == []


def test_every_place_of_a_long_document_counts_once() -> None:
    long = example(TEXTS[0] * 3, (6, "double"), (59, "late"), (118, "double"))
    everywhere = len(tokenizer())
    found, whole = (
        find_openings(caller("llama", tokenizer(), context=context), [long], NAMES, top_k=everywhere)
        for context in (48, 512)
    )
    assert [o.called for o in found] == [o.called for o in whole]
    assert [o.called for o in found if o.called] == ["double", "late", "double"]
    with pytest.raises(ContextError, match="context"):
        find_openings(caller("llama", tokenizer(), context=16), [long], NAMES)


def test_names_are_read_from_the_calls() -> None:
    assert names_of(EXAMPLES) == NAMES
    assert names_of(EXAMPLES[1:2]) == {}


def test_decoding_opens_where_an_opening_is_found_with_the_same_probability() -> None:
    coded = tokenizer()
    (bang,) = after(coded, "!")
    lm = writing_lm("llama", coded, [([bang], [*after(coded, " ["), *after(coded, "y")]), *call_edges(coded)])
    opened = find_openings(lm, [example("So!y", (3, "late"))], NAMES, top_k=2)
    wanted = next(o for o in opened if o.called)  # behind "So!"
    settings = GenerationSettings(max_new_tokens=1, top_k=2)
    toolformer = Toolformer(lm, [Double(), Late()])
    for factor, calls in ((0.999, 1), (1.001, 0)):
        trigger = {wanted.named: wanted.probability * factor}
        (g,) = toolformer.generate(["So!"], replace(settings, trigger=trigger))
        assert len(g.calls) == calls
