"""Shapes of answers and prompts, worked out by hand."""

from typing import Any

import pytest

from serving.chat import chat_prompt, turn_of
from serving.errors import RequestError
from serving.openai_format import ResponseForm, ResponseWriter
from serving.schemas import CompletionRequest, Message, decode_settings
from tests.tiny import tokenizer
from toolformer_core.decode.records import (
    CallFinished,
    CallStarted,
    DecodeEvent,
    Finished,
    Generation,
    GenerationSettings,
    TextDelta,
    ToolCall,
)

CALL = ToolCall("Calculator", "1 + 1", "2", None, "", 0, 25, 0.25)
TEXT = " [Calculator(1 + 1) -> 2] is 2."
GENERATION = Generation(TEXT, " is 2.", (CALL,), "stop", 7, 4, 12, 0, ())
EVENTS: list[DecodeEvent] = [
    CallStarted(0, "Calculator", "1 + 1", " [Calculator(1 + 1) ->"),  # 22 characters
    CallFinished(0, CALL, " 2]"),  # 3
    TextDelta(0, " is"),
    TextDelta(0, " 2."),
    Finished(0, GENERATION),
]


def written(**form: Any) -> tuple[list[dict[str, Any]], ResponseWriter]:
    response_writer = ResponseWriter(
        ResponseForm(**{"chat": True, "model": "m", "fingerprint": "fp", "choices": 1, **form})
    )
    chunks = [
        *response_writer.begin(),
        *(c for event in EVENTS for c in response_writer.write(event)),
        *response_writer.end(),
    ]
    assert response_writer.done
    assert not response_writer.cut
    return chunks, response_writer


@pytest.mark.parametrize(
    ("form", "content", "span"),
    [
        ({}, " is 2.", (0, 0)),
        ({"leading_space": True}, "is 2.", (0, 0)),
        ({"show_calls": True}, TEXT, (0, 25)),  # 22 + 3
        ({"show_calls": True, "leading_space": True}, TEXT[1:], (0, 24)),
    ],
)
def test_a_choice_in_chunks_and_whole(form: dict[str, Any], content: str, span: tuple[int, int]) -> None:
    chunks, response_writer = written(**form)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == content
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None] * 5 + ["stop"]
    whole = response_writer.complete()["choices"][0]
    assert whole["message"]["content"] == content
    (call,) = whole["toolformer"]["calls"]
    assert (call["start"], call["end"]) == span
    assert content[slice(*span)].strip() == ("[Calculator(1 + 1) -> 2]" if span[1] else "")
    assert chunks[2]["choices"][0]["toolformer"] == {"event": "call_finished", "call": call}


def test_turns_of_a_base_model() -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How many days has a week?"},
        {"role": "assistant", "content": "Seven."},
        {"role": "user", "content": "And four of them?"},
    ]
    prompt = chat_prompt(tokenizer(), turns)
    assert prompt.text == (
        "Be brief.\n\nUser: How many days has a week?\nAssistant: Seven.\nUser: And four of them?\nAssistant:"
    )
    assert prompt.stops == ("\nUser:", "\nAssistant:")
    assert prompt.leading_space


def test_a_tokenizer_s_own_template_is_obeyed() -> None:
    class Templated:
        chat_template = "there is one"

        def __init__(self, fails: bool = False) -> None:
            self.fails = fails

        def apply_chat_template(self, turns: list[dict[str, str]], **more: bool) -> str:
            assert more == {"tokenize": False, "add_generation_prompt": True}
            if self.fails:
                raise ValueError("no system turn")
            return "".join(f"<{t['role']}>{t['content']}" for t in turns) + "<assistant>"

    prompt = chat_prompt(Templated(), [{"role": "user", "content": "Hi"}])
    assert (prompt.text, prompt.stops, prompt.leading_space) == ("<user>Hi<assistant>", (), False)
    with pytest.raises(RequestError, match="no system turn"):
        chat_prompt(Templated(fails=True), [{"role": "user", "content": "Hi"}])


def test_parts_of_a_turn_are_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert turn_of(Message(role="developer", content=parts), "m") == {"role": "system", "content": "ab"}
    assert turn_of(Message(role="assistant", content=None), "m") == {"role": "assistant", "content": ""}
    with pytest.raises(RequestError, match="content must be a text"):
        turn_of(Message(role="user", content=None), "m")


def settings_of(**more: Any) -> list[GenerationSettings]:
    request = CompletionRequest.model_validate({"model": "m", "prompt": "x", **more})
    return decode_settings(request, 1, (), {"qa": 0.3})


def test_settings_are_greedy_with_seeds_that_wrap_the_request_s_date_and_the_server_s_thresholds() -> None:
    assert [s.seed for s in settings_of(seed=-1, n=3)] == [2**64 - 1, 0, 1]
    (found,) = settings_of(toolformer={"date": "2024-01-02", "trigger": None})
    assert (found.context, found.trigger) == ("2024-01-02", {"qa": 0.3})
    assert (found.temperature, found.top_p, found.top_k, found.max_calls, found.max_new_tokens) == (0, 1, 10, 1, 16)
