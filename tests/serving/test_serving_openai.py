"""OpenAI's own client against a real server: what it reads is what decoding alone gives."""

import json
from collections.abc import Iterator
from datetime import date
from typing import Any

import httpx
import openai
import pytest

from serving.chat import chat_prompt
from serving.server import ModelServer
from tests.core.decode.writers import torn
from tests.serving.routed import asking, chat
from tests.serving.servers import NAME, body_of, model_server, tool_named
from tests.tiny import tokenizer
from toolformer_core.decode.records import Generation, GenerationSettings
from toolformer_core.decode.toolformer import Toolformer

CALLING = {"k": 1}
TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "So!"}]


@pytest.fixture
def client(server: ModelServer) -> Iterator[openai.OpenAI]:
    with asking(server) as found:
        yield found


def complete(client: openai.OpenAI, prompt: Any = "So!", own: dict[str, Any] = CALLING, **more: Any) -> Any:
    extra = {"extra_body": {"toolformer": own}, **more}
    return client.completions.create(model=NAME, prompt=prompt, **{"max_tokens": 8, **extra})


def of_alone(alone: Toolformer, prompt: str, **settings: object) -> Generation:
    context = date.today().isoformat()
    (found,) = alone.generate([prompt], GenerationSettings(**{"top_k": 1, "context": context, **settings}))  # type: ignore[arg-type]
    return found


def test_models(client: openai.OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.object) == (NAME, "model")
    assert [t["key"] for t in model.toolformer["tools"]] == ["sevens", "days"]  # type: ignore[attr-defined]
    assert client.models.retrieve(NAME).id == NAME
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="other", prompt="x")
    assert caught.value.code == "model_not_found"


def test_a_completion(client: openai.OpenAI, alone: Toolformer) -> None:
    want = of_alone(alone, "So!", max_new_tokens=8)
    assert len(want.calls) == 1
    got = complete(client)
    (choice,) = got.choices
    assert (choice.text, choice.finish_reason, choice.index) == (want.clean, "length", 0)
    (call,) = choice.toolformer["calls"]  # type: ignore[attr-defined]
    assert (call["input"], call["response"], call["failure"]) == (want.calls[0].input, want.calls[0].response, None)
    assert (call["start"], call["end"]) == (0, 0)  # it stood at the beginning, and is not shown
    assert got.usage is not None
    assert got.usage.prompt_tokens == want.prompt_tokens
    assert got.usage.completion_tokens == want.new_tokens + want.call_tokens
    assert got.usage.total_tokens == got.usage.prompt_tokens + got.usage.completion_tokens
    (choice,) = complete(client, own={"k": 1, "show_calls": True}, echo=True).choices
    assert choice.text == "So!" + want.text
    (call,) = choice.toolformer["calls"]  # type: ignore[attr-defined]
    assert choice.text[call["start"] : call["end"]] == want.text[want.calls[0].start : want.calls[0].end]


def test_a_streamed_completion(client: openai.OpenAI, alone: Toolformer) -> None:
    want = of_alone(alone, "So!", max_new_tokens=8)
    for shown, text in ((False, want.clean), (True, want.text)):
        own = {"k": 1, "show_calls": shown}
        *said, usage = complete(client, own=own, stream=True, stream_options={"include_usage": True})
        assert {c.id for c in said} == {usage.id}
        assert all(c.usage is None for c in said)
        assert usage.choices == []
        assert usage.usage is not None
        assert usage.usage.completion_tokens == want.new_tokens + want.call_tokens
        assert "".join(c.choices[0].text for c in said) == text
        assert [c.choices[0].finish_reason for c in said] == [None] * (len(said) - 1) + ["length"]
        told = [c.choices[0].toolformer for c in said if hasattr(c.choices[0], "toolformer")]
        assert [t.get("event") for t in told] == ["call_started", "call_finished", None]
        assert told[0]["input"] == want.calls[0].input
        assert told[1]["call"] == told[2]["calls"][0]
        assert told[1]["call"]["response"] == want.calls[0].response


def test_a_chat(client: openai.OpenAI, alone: Toolformer) -> None:
    prompt = chat_prompt(alone.lm.hf_model.tokenizer, TURNS)
    assert prompt.text == "Be brief.\n\nUser: So!\nAssistant:"
    want = of_alone(alone, prompt.text, max_new_tokens=12, stop=prompt.stops)
    (choice,) = chat(client, TURNS, CALLING, max_tokens=None, max_completion_tokens=12).choices
    assert choice.message.role == "assistant"
    assert choice.message.content == want.clean.removeprefix(" ")
    assert choice.finish_reason == want.finish
    again = [*TURNS, choice.message.model_dump(), {"role": "user", "content": [{"type": "text", "text": "Go on"}]}]
    assert chat(client, again, max_tokens=2).choices[0].message.content


def test_a_streamed_chat(client: openai.OpenAI) -> None:
    whole = chat(client, TURNS, CALLING, n=2)
    chunks = list(chat(client, TURNS, CALLING, n=2, stream=True))
    for i in (0, 1):
        mine = [c.choices[0] for c in chunks if c.choices[0].index == i]
        assert (mine[0].delta.role, mine[0].delta.content) == ("assistant", "")
        assert all(c.delta.role is None for c in mine[1:])
        assert "".join(c.delta.content or "" for c in mine) == whole.choices[i].message.content
        assert [c.finish_reason for c in mine if c.finish_reason] == [whole.choices[i].finish_reason]
    assert {c.object for c in chunks} == {"chat.completion.chunk"}
    content = whole.choices[0].message.content
    stop = content[3:5]  # the client's helper raises for answers that end by their length
    extra = {"toolformer": CALLING}
    with client.chat.completions.stream(
        model=NAME, messages=TURNS, max_tokens=16, stop=stop, extra_body=extra
    ) as stream:
        assert stream.get_final_completion().choices[0].message.content == content[: content.index(stop)]


def test_samples_depend_on_the_seed_alone(client: openai.OpenAI, alone: Toolformer) -> None:
    def draw(**more: object) -> list[str]:
        got = complete(client, "The", {"k": 0}, max_tokens=10, temperature=0.9, top_p=0.95, **more)
        return [c.text for c in got.choices]

    three = draw(seed=5, n=3, best_of=3)
    assert three == draw(seed=5, n=3)
    want = [
        of_alone(alone, "The", max_new_tokens=10, top_k=0, temperature=0.9, top_p=0.95, seed=seed).text
        for seed in (5, 6, 7)
    ]
    assert three == want
    assert len(set(three)) == 3
    assert draw() != draw()  # no seed: anew every time (two equal texts of ten random tokens are not to be expected)


def test_several_prompts_and_their_choices(client: openai.OpenAI, alone: Toolformer) -> None:
    got = complete(client, ["So!", "x"], n=2, max_tokens=4)
    want = [of_alone(alone, p, max_new_tokens=4) for p in ("So!", "So!", "x", "x")]
    assert [(c.index, c.text) for c in got.choices] == [(i, g.clean) for i, g in enumerate(want)]
    assert got.usage is not None
    assert got.usage.prompt_tokens == want[0].prompt_tokens + want[2].prompt_tokens


def test_stop_strings(client: openai.OpenAI, alone: Toolformer) -> None:
    text = of_alone(alone, "x", max_new_tokens=12, top_k=0).text
    stop = text[3:5]
    for stops in ([stop], [*(f"never {i}" for i in range(5)), stop]):  # OpenAI takes four
        got = complete(client, "x", {"k": 0}, max_tokens=12, stop=stops)
        assert (got.choices[0].text, got.choices[0].finish_reason) == (text[: text.index(stop)], "stop")


def test_our_own_fields(client: openai.OpenAI) -> None:
    def calls(**own: object) -> list[dict[str, object]]:
        return complete(client, own=own, max_tokens=6).choices[0].toolformer["calls"]  # type: ignore[no-any-return]

    (call,) = calls(k=1)
    assert calls(k=0) == calls(k=1, max_calls=0) == []
    (refused,) = calls(k=1, tools=["days" if call["tool"] == "T" else "sevens"])
    assert (refused["failure"], refused["response"]) == ("not_enabled", "")


def test_what_asks_for_nothing_is_accepted(client: openai.OpenAI) -> None:
    penalties = {"frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "logprobs": False}
    ignored = {"user": "someone", "metadata": {"a": "b"}, "service_tier": "auto"}
    plain = {"store": False, "response_format": {"type": "text"}, "tool_choice": "none"}
    assert chat(client, TURNS, **penalties, **ignored, **plain).choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"logprobs": 2}, "logprobs"),
        ({"best_of": 4}, "best_of"),
        ({"suffix": "end"}, "suffix"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"n": 0}, "n"),
        ({"temperature": 3}, "temperature"),
        ({"stop": ["x"] * 129}, "stop"),
        ({"stop": ["a", ""]}, "stop"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"nonsense": 1}, "nonsense"),
        ({"toolformer": {"k": -1}}, "toolformer.k"),
        ({"toolformer": {"date": "yesterday"}}, "toolformer.date"),
        ({"toolformer": {"tools": ["abacus"]}}, "toolformer.tools"),
        ({"prompt": "word " * 600}, None),  # longer than the context
        ({"messages": TURNS, "tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"messages": TURNS, "logprobs": True}, "logprobs"),
        ({"messages": TURNS, "response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "messages[0]"),
        ({"messages": [{"role": "critic", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        # JSON can write half of a character, which no UTF-8 text holds and no tokenizer reads
        ({"prompt": ["So!", "a\udfff"], "stream": True}, "prompt"),
        ({"stop": ["x", "\ud800"]}, "stop"),
        ({"toolformer": {"date": "\ud800"}}, "toolformer.date"),
        ({"toolformer": {"tools": ["\ud800"]}}, "toolformer.tools"),
        ({"messages": [TURNS[0], {"role": "user", "content": "\ud800"}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "\ud800"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "\ud800", "content": "x"}]}, "messages[0].role"),
        ({"messages": TURNS, "\ud800": 1}, None),
    ],
    ids=lambda value: ascii(value)[:50],
)
def test_what_is_refused(server: ModelServer, more: dict[str, object], param: str | None) -> None:
    path, body = ("chat/completions", {}) if "messages" in more else ("completions", {"prompt": "So!"})
    content = json.dumps({"model": NAME, "max_tokens": 2, **body, **more})
    refused = httpx.post(f"{server.url}/v1/{path}", content=content, headers={"content-type": "application/json"})
    error = refused.json()["error"]
    assert (refused.status_code, error["param"], error["type"]) == (400, param, "invalid_request_error")
    assert error["message"]


def test_a_request_may_name_its_own_thresholds() -> None:
    lm, p = torn(tokenizer(), "T(7) ->")  # p(" [") behind "So!"
    above = p * 1.001

    def calls(**more: object) -> int:
        sent = httpx.post(f"{server.url}/v1/completions", json=body_of(toolformer={"k": 2, **more}))
        return len(sent.json()["choices"][0]["toolformer"]["calls"])

    with model_server(lm, [tool_named("T", {"7": "49"})], trigger={"t": above}) as server:
        assert calls() == 0
        assert calls(trigger={}) == 1
        assert calls(trigger={"t": p * 0.999}) == 1
        assert calls(trigger={"t": above}) == 0
        for wrong, says in (({"t": 1.5}, "less than or equal to 1"), ({"tt": 0.5}, "unknown tool in trigger 'tt'")):
            refused = httpx.post(f"{server.url}/v1/completions", json=body_of(toolformer={"trigger": wrong}))
            assert refused.status_code == 400
            error = refused.json()["error"]
            assert says in error["message"]
            assert error["param"].startswith("toolformer.trigger")
    assert p < above < 1


@pytest.mark.parametrize("router", ["off", "gear"])
def test_the_option_reaches_the_server(router: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from cli.main import app

    served = []
    monkeypatch.setattr(ModelServer, "serve_until_ended", lambda self: served.append(self.settings.trigger))
    words = ["serve", "--port", "0", "--trigger", "calculator=0.2", "--tools", "calculator", "--router", router]
    told = CliRunner().invoke(app, words)
    assert (told.exit_code, served) == (0, [{"calculator": 0.2}])
