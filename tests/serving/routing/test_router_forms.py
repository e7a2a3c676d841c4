"""Responses to routed chats, whole and streamed, and what a client sends back."""

import json
from typing import Any

import httpx
import openai
import pytest

from serving.server import ModelServer
from tests.serving.routed import MESSAGE, WEATHER, Tool, chat
from tests.serving.servers import NAME, model_server
from toolformer_core.decode.records import GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.lm.hf.engine import TransformersLM


def test_the_call_of_the_server_is_shown_where_calls_are_shown(client: openai.OpenAI) -> None:
    answer = chat(client, "What is seven of these?", {"show_calls": True})
    (choice,) = answer.choices
    (call,) = choice.toolformer["calls"]
    written = f"[T({call['input']}) -> {call['response']}]"
    assert choice.message.content == f"{written} {call['response']}"
    assert choice.message.content[call["start"] : call["end"]] == written


def test_the_client_s_result_continues_the_conversation(client: openai.OpenAI, lm: TransformersLM) -> None:
    question = {"role": "user", "content": "How is the weather?"}
    first = chat(client, [question], tools=[WEATHER]).choices[0].message
    (call,) = first.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"}
    turns = [question, first.model_dump(exclude_none=True), result]
    answer = chat(client, turns, tools=[WEATHER])
    city = json.loads(call.function.arguments)["city"]
    alone = Toolformer(lm, [])
    (want,) = alone.generate(
        [f"User: How is the weather?\nAssistant: [get_weather({city}) -> 18 degrees]"],
        GenerationSettings(max_new_tokens=16, top_k=0, stop=("\nUser:", "\nAssistant:")),
    )
    alone.close()
    assert answer.choices[0].message.content == want.text.removeprefix(" ")
    assert answer.choices[0].message.tool_calls is None
    again = chat(
        client, [question, first.model_dump(exclude_none=True), result], tools=[WEATHER], tool_choice="required"
    )
    assert again.choices[0].message.tool_calls


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("What is seven of these?", {}),
        ("What is seven of these?", {"show_calls": True}),
        ("How is the weather?", {}),
        ("Hello", {}),
    ],
)
def test_a_stream_holds_what_the_whole_response_holds(client: openai.OpenAI, text: str, more: dict[str, Any]) -> None:
    whole = chat(client, text, more, tools=[WEATHER], n=2)
    chunks = list(chat(client, text, more, tools=[WEATHER], n=2, stream=True, stream_options={"include_usage": True}))
    *said, last = chunks
    assert last.usage == whole.usage
    for i, want in enumerate(whole.choices):
        mine = [chunk.choices[0] for chunk in said if chunk.choices[0].index == i]
        assert mine[0].delta.role == "assistant"
        assert "".join(one.delta.content or "" for one in mine) == (want.message.content or "")
        assert [one.finish_reason for one in mine if one.finish_reason] == [want.finish_reason]
        pieces = [piece for one in mine for piece in one.delta.tool_calls or []]
        assert {piece.index for piece in pieces} <= {0}
        assert "".join(piece.function.arguments or "" for piece in pieces) == "".join(
            one.function.arguments for one in want.message.tool_calls or []
        )
        assert [piece.function.name for piece in pieces if piece.id] == [
            one.function.name for one in want.message.tool_calls or []
        ]
        told, same = mine[-1].toolformer, want.toolformer
        assert [(c["tool"], c["input"], c["start"], c["end"]) for c in told["calls"]] == [
            (c["tool"], c["input"], c["start"], c["end"]) for c in same["calls"]
        ]
        assert len({piece.id for piece in pieces if piece.id}) == len(want.message.tool_calls or [])


def test_the_client_s_own_helper_reads_the_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=NAME, messages=[{"role": "user", "content": "How is the weather?"}], tools=[WEATHER]
    ) as stream:
        (call,) = stream.get_final_completion().choices[0].message.tool_calls or []
    assert call.function.name == "get-weather"


def test_limits_of_the_text_hold_for_a_response(client: openai.OpenAI) -> None:
    def answer(**more: Any) -> Any:
        messages = [{"role": "user", "content": "What is seven of these?"}]
        return client.chat.completions.create(model=NAME, messages=messages, **more).choices[0]

    whole = answer()
    assert whole.message.content.startswith("it is ")
    assert (answer(stop="is").message.content, answer(stop="is").finish_reason) == ("it ", "stop")
    short = answer(max_tokens=1)
    assert short.finish_reason == "length"
    assert whole.message.content.startswith(short.message.content)
    assert len(short.message.content) < len(whole.message.content)


def test_without_the_router_nothing_speaks_of_it(lm: TransformersLM, tools: list[Tool]) -> None:
    with model_server(lm, tools) as server:
        for path in ("/metrics", "/openapi.json", "/v1/models"):
            assert "rout" not in httpx.get(f"{server.url}{path}").text.lower()
        refused = httpx.post(
            f"{server.url}/v1/chat/completions",
            json={"model": NAME, "messages": [MESSAGE], "toolformer": {"threshold": 0.5}},
        )
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "toolformer.threshold")


def test_metrics_and_the_model_s_card(client: openai.OpenAI, server: ModelServer) -> None:
    def count(*names: str) -> list[float]:
        lines = httpx.get(f"{server.url}/metrics").text.splitlines()
        return [sum(float(line.split()[-1]) for line in lines if line.startswith(f"{name} ")) for name in names]

    counted = (
        'toolformer_routed_requests_total{runs_it="server",tool="T"}',
        'toolformer_routed_requests_total{runs_it="client",tool=""}',
        'toolformer_routed_requests_total{runs_it="nobody",tool=""}',
        "toolformer_router_seconds_count",
        'toolformer_tool_calls_total{outcome="ok",tool="T"}',
    )
    before = count(*counted)
    for text in ("What is seven of these?", "How is the weather?", "Hello"):
        chat(client, text, tools=[WEATHER])
    # T runs once for each of the three: the call that it is ranked by is the one that answers.
    assert [after - n for n, after in zip(before, count(*counted), strict=True)] == [1, 1, 1, 3, 3]
    assert server.engine_thread.taken == 0
    (card,) = client.models.list().data
    assert card.toolformer["router"]["name"] == "gear"  # type: ignore[attr-defined]
