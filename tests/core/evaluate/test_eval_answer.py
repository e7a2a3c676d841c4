"""Answering with a model: what is scored, which tools are offered, and perplexity against the plain computation."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import encode, plain_log_probs, tiny_lm, tokenizer

from tests.core.decode.writers import merging, speaks, torn
from tests.fakes import FakeTool
from toolformer_core.decode.records import Generation, GenerationSettings, ToolCall
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.evaluate.answer import TOO_LONG, PredictedCall, answer, parameters_of
from toolformer_core.evaluate.items import Item
from toolformer_core.evaluate.likelihood import _windows, likelihoods
from toolformer_core.evaluate.tasks import task_named
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.tools.build import build_tools

LONG = "The Nile is 6,853 km long; its source is the White Nile [citation needed] -> see below. " * 6


def items(*prompts: str) -> list[Item]:
    return [Item(f"i{n}", "demo", prompt, ("35",), group="g") for n, prompt in enumerate(prompts)]


def plain_nll(lm: TransformersLM, ids: list[int], last: int) -> float:
    """Of the last tokens, each from all those in front of it, " [" impossible."""
    log_p = plain_log_probs(lm, ids)  # (T, V)
    (trigger,) = lm.hf_model.trigger
    total = 0.0
    for at in range(len(ids) - last, len(ids)):
        row = log_p[at - 1].clone()
        if ids[at] != trigger:
            row[trigger] = -math.inf
        total -= float(row[ids[at]] - torch.logsumexp(row, 0))
    return total


def test_perplexity_is_the_plain_one_with_calls_disabled() -> None:
    lm = tiny_lm(context=512)
    texts = ["It is [ 3 + 4 ] = 7.", "x", "A longer text, with 27 + 4 * 2 = 35 in it, and words.", ""]
    found = likelihoods(lm, items(*texts))
    for one, text in zip(found[:3], texts, strict=False):
        ids = [lm.hf_model.bos, *encode(lm, text)]
        assert (one.nll, one.tokens) == (pytest.approx(plain_nll(lm, ids, len(ids) - 1), abs=1e-3), len(ids) - 1)
        assert one.characters == len(text)
    assert (found[3].tokens, found[3].nll, found[3].problem) == (0, 0.0, "no_tokens")


def test_a_long_text_is_read_in_windows_that_overlap_by_half() -> None:
    lm = tiny_lm(context=33)  # a start token and 32 of the text
    ids = encode(lm, LONG)
    (found,) = likelihoods(lm, items(LONG))
    total, done, start = 0.0, 0, 0
    while done < len(ids):  # 0..32, then 16 new ones at a time, each with at least 16 in front
        end = min(start + 32, len(ids))
        total += plain_nll(lm, [lm.hf_model.bos, *ids[start:end]], end - done)
        done, start = end, start + 16
    assert (found.nll, found.tokens) == (pytest.approx(total, rel=1e-5), len(ids))


@given(st.integers(0, 200), st.booleans(), st.integers(5, 40))
@settings(max_examples=60, deadline=None)
def test_every_token_is_predicted_once(n: int, lead: bool, context: int) -> None:
    class HFModel:
        bos = 0 if lead else None
        context_length = context

        @staticmethod
        def encode(text: str) -> list[int]:
            return list(range(1, n + 1))

    predicted: list[int] = []
    for ids, count in _windows(HFModel, ""):  # type: ignore[arg-type]
        assert len(ids) <= context
        assert count < len(ids)  # each from something
        predicted += ids[len(ids) - count :]
    assert predicted == list(range(1 if lead else 2, n + 1))


class Writer:
    """Stands for a Toolformer: it writes what it is told to, and keeps the settings it was given."""

    def __init__(self, *texts: tuple[str, str, ToolCall | tuple[ToolCall, ...] | None]) -> None:
        self.lm = tiny_lm()
        self.texts = texts
        self.settings: list[GenerationSettings] = []
        self.keys = {"Miles": "miles"}  # a tool of the user's own

    def generate(self, prompts: list[str], settings: list[GenerationSettings]) -> list[Generation]:
        self.settings = settings
        return [
            Generation(
                text, clean, calls if isinstance(calls, tuple) else (calls,) if calls else (), "length", 5, 7, 3, 0, ()
            )
            for text, clean, calls in self.texts
        ]


def test_what_a_tool_answers_is_not_what_the_model_says() -> None:
    # i0's call gives 35 and the model says 36: wrong. i1 says it behind its call: right.
    call = ToolCall("Calculator", "27 + 4 * 2", "35", None, "", 3, 35, 0.0)
    failed = ToolCall("MT", "5 * 7", "", "not_enabled", "", 0, 14, 0.0)
    writer = Writer(
        (" it [Calculator(27 + 4 * 2) -> 35] is 36", " it is 36", call), (" [MT(5 * 7) ->] 35.", " 35.", failed)
    )
    asked = [Item("i0", "demo", "a", ("35",), date="2023-01-30"), Item("i1", "demo", "b", ("35",))]
    found = answer(writer, task_named("small-world"), asked, top_k=10, tools=["calculator"])  # type: ignore[arg-type]
    assert [(p.correct, p.called, p.tool, p.input, p.response, p.failure) for p in found] == [
        (False, True, "calculator", "27 + 4 * 2", "35", None),
        (True, False, "mt", "5 * 7", "", "not_enabled"),  # no tool was asked: no call
    ]
    assert [(s.top_k, s.max_calls, s.max_new_tokens, s.context, s.tools, s.temperature) for s in writer.settings] == [
        (10, 1, 32, "2023-01-30", ("calculator",), 0.0),
        (10, 1, 32, "", ("calculator",), 0.0),
    ]


def test_of_several_calls_each_is_recorded_with_its_place_in_the_clean_text() -> None:
    first, second = " [QA(When?) -> 1820]", " [Calculator(1820 + 45) -> 1865]"
    failed, last = " [MT(x) ->]", " [Miles(3) -> 5]"
    text = f" from{first}{second} 1865{failed}, five{last} miles"
    at = [text.index(written) for written in (first, second, failed, last)]
    ends = [start + len(written) for start, written in zip(at, (first, second, failed, last), strict=True)]
    calls = (
        ToolCall("QA", "When?", "1820", None, "", at[0], ends[0], 0.0),
        ToolCall("Calculator", "1820 + 45", "1865", None, "", at[1], ends[1], 0.0),
        ToolCall("MT", "x", "", "not_enabled", "", at[2], ends[2], 0.0),
        ToolCall("Miles", "3", "5", None, "", at[3], ends[3], 0.0),
    )
    writer = Writer((text, " from 1865, five miles", calls), (" 1865", " 1865", None))
    asked = [
        Item("i0", "demo", "a", ("1865",)),
        Item("i1", "demo", "b", ("1865",)),
        Item("i2", "demo", LONG * 9, ("x",)),
    ]
    task, offered = task_named("small-world-chains"), ["qa", "calculator", "miles"]
    found = answer(writer, task, asked, top_k=10, tools=offered, max_calls=8)  # type: ignore[arg-type]
    assert [s.max_calls for s in writer.settings] == [8, 8]
    # " from" is 5 characters long, " from 1865" 10 and " from 1865, five" 16; the first two calls are a chain
    assert found[0].calls == (
        PredictedCall("qa", 5, "When?", "1820", None, True),
        PredictedCall("calculator", 5, "1820 + 45", "1865", None, True),
        PredictedCall("mt", 10, "x", "", "not_enabled", False),
        PredictedCall("miles", 16, "3", "5", None, True),
    )
    assert (found[0].tool, found[0].response, found[0].correct) == ("qa", "1820", True)  # of the first, as ever
    assert [(p.calls, p.problem) for p in found[1:]] == [((), ""), ((), TOO_LONG)]
    one = answer(writer, task, asked, top_k=10, tools=offered)  # type: ignore[arg-type]
    off = answer(writer, task, asked, top_k=0, tools=[], max_calls=8)  # type: ignore[arg-type]
    assert [p.calls for p in (*one, *off)] == [None] * 6
    assert [s.max_calls for s in writer.settings] == [0, 0]


def test_a_bracket_that_names_no_tool_is_scored_as_text() -> None:
    lm = speaks(tokenizer(), "U(7) -> 35")
    toolformer = Toolformer(lm, [FakeTool({})])
    item = Item("i0", "small-world", "So!", ("35",))
    (found,) = answer(toolformer, task_named("small-world"), [item], top_k=1, tools=["fake"], max_new_tokens=12)
    assert found.continuation.startswith(" [U(7) -> 35")
    assert (found.clean, found.correct, found.called, found.tool) == (found.continuation, True, False, None)


def test_parameters_are_counted_once() -> None:
    lm = tiny_lm("qwen2")  # its output layer is its embedding
    embedding = lm.hf_model.model.get_input_embeddings().weight.numel()
    assert parameters_of(lm) == sum(p.numel() for p in lm.hf_model.model.state_dict().values()) - embedding


def test_thresholds_hold_calls_back() -> None:
    lm, p = torn(merging("Calculator(3 + 4) ->"), "Calculator(3 + 4) ->")  # p(" [") behind "So!"
    toolformer = Toolformer(lm, list(build_tools(["calculator"]).values()))
    for factor, called in ((0.999, True), (1.001, False)):
        trigger = {"calculator": factor * p}
        options = {"top_k": 2, "tools": ["calculator"], "max_new_tokens": 4, "trigger": trigger}
        (found,) = answer(toolformer, task_named("svamp"), items("So!"), **options)  # type: ignore[arg-type]
        assert found.called == called
