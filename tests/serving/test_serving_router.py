"""The server with its router on, asked by OpenAI's own client: which tool answers, and in which form."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from serving.routing.records import RouterSettings
from serving.server import ModelServer, ServerSettings
from tests.core.decode.writers import after, writing_lm
from tests.fakes import FakeTool
from tests.serving.servers import DEADLINE_S, NAME, address_of, running, until
from tests.tiny import tokenizer
from toolformer_core.decode.records import GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import ModelError
from toolformer_core.grounding.encoders import Embeddings, HiddenStateEncoder, normalised
from toolformer_core.grounding.ground import Grounder, GroundingSettings
from toolformer_core.grounding.library import library_of
from toolformer_core.grounding.records import Query
from toolformer_core.grounding.scores import Weights
from toolformer_core.grounding.small_lm import HFSmallLM
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.records import ToolFailure
from toolformer_core.tools.declaration import ToolDeclaration

AXES = ("seven", "day", "weather", "robot")  # a text's embedding: which of these words it has
SHORT = GroundingSettings(max_answer_tokens=4, max_call_tokens=12)


class WordEncoder:
    """One dimension for each of a few words, and one that all texts have: cosines worked out by hand."""

    digest = "words"

    def __init__(self) -> None:
        self.embedded: list[str] = []

    def encode(self, texts: Sequence[str]) -> Embeddings:
        self.embedded += texts
        return normalised(np.asarray([[1.0, *(3.0 * (word in text.lower()) for word in AXES)] for text in texts]))


class Tool(FakeTool):
    def __init__(self, key: str, name: str, description: str, answer: Any, mock: str = "") -> None:
        super().__init__(answer)
        self.key, self.name, self.description, self.fingerprint = key, name, description, key
        self.declaration = ToolDeclaration(mock_response=mock)


def sevens() -> Tool:
    return Tool("sevens", "T", "Seven times a number.", lambda input, context: f"it is {7 * int(input)}")


def days() -> Tool:
    return Tool("days", "U", "Tells the day.", lambda input, context: f"{context} after {input}", mock="2020-01-01")


@pytest.fixture(scope="module")
def lm() -> TransformersLM:
    """A model that writes [T(digits)] after every " [", and digits after every "("."""
    coded = tokenizer()

    def one(text: str) -> int:
        (token,) = coded.convert_tokens_to_ids([text])
        return int(token)

    digits = [one(d) for d in "123456789"]
    edges = [
        ([after(coded, " [")[-1]], [one("T")]),
        ([one("T")], [one("(")]),
        ([one("(")], digits),
        (digits[:4], [one(")")]),
        (digits[4:], [one(")"), *digits]),
        ([one(")")], [one("]")]),
    ]
    return writing_lm("llama", coded, edges)


def settings(tools: Sequence[Tool], **more: Any) -> RouterSettings:
    mock = more.pop("mock", ("days",))
    return RouterSettings(
        library_of(tools, mock=mock, undemonstrated=True),
        **{"weights": Weights(gamma=1.0, threshold=0.5), "grounding": SHORT, "encoder": WordEncoder(), **more},
    )


@pytest.fixture(scope="module")
def tools() -> list[Tool]:
    return [sevens(), days()]


@pytest.fixture(scope="module")
def server(lm: TransformersLM, tools: list[Tool]) -> Iterator[ModelServer]:
    router = settings(tools)
    with running(lambda: Toolformer(lm, tools, max_rows=4), max_rows=4, queue=64, router=router) as found:
        yield found


@pytest.fixture
def client(server: ModelServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as found:
        yield found


def function(name: str, description: str, properties: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    given = {"city": {"type": "string"}} if properties is None else properties
    parameters = {"type": "object", "properties": given, "required": list(given), "additionalProperties": False}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters, **more},
    }


WEATHER = function("get-weather", "The weather of a city.")
ROBOT = function("move", "Moves the robot.", {"steps": {"type": "integer"}})


def chat(
    client: openai.OpenAI, text: str | list[dict[str, Any]], own: dict[str, Any] | None = None, **more: Any
) -> Any:
    messages = [{"role": "user", "content": text}] if isinstance(text, str) else text
    return client.chat.completions.create(
        model=NAME,
        messages=messages,
        max_tokens=16,
        extra_body={"toolformer": {"explain": True, **(own or {})}},
        **more,
    )


def router_of(answer: Any) -> dict[str, Any]:
    found = answer.choices[0].toolformer["router"]
    assert isinstance(found, dict)
    return found


def test_a_tool_of_the_server_answers(client: openai.OpenAI, tools: list[Tool]) -> None:
    answer = chat(client, "What is seven of these?", tools=[WEATHER])
    (choice,) = answer.choices
    (call,) = choice.toolformer["calls"]
    assert (call["tool"], call["response"]) == ("T", f"it is {7 * int(call['input'])}")
    assert (choice.message.content, choice.finish_reason) == (call["response"], "stop")
    assert choice.message.tool_calls is None
    told = router_of(answer)
    assert (told["runs_it"], told["tool"]) == ("server", "T")
    # (1, 3) with (1, 3) on the same axis: 1; (1, 3) with (1, 3) on another one: 1 / 10
    assert [(one["tool"], one["score"]) for one in told["ranking"]] == [
        ("sevens", 1.0),
        ("days", 0.1),
        ("client:get-weather", 0.1),
    ]
    assert tools[0].asked.count((call["input"], tools[0].asked[-1][1])) >= 1
    assert answer.usage.completion_tokens > 0


def test_the_call_of_the_server_is_shown_where_calls_are_shown(client: openai.OpenAI) -> None:
    answer = chat(client, "What is seven of these?", {"show_calls": True})
    (choice,) = answer.choices
    (call,) = choice.toolformer["calls"]
    written = f"[T({call['input']}) -> {call['response']}]"
    assert choice.message.content == f"{written} {call['response']}"
    assert choice.message.content[call["start"] : call["end"]] == written


def test_the_model_can_write_on_from_the_response(client: openai.OpenAI, lm: TransformersLM) -> None:
    question = "What is seven of these?"
    answer = chat(client, question, {"answer": "text"}, n=2, temperature=0.8, seed=3)
    (call,) = answer.choices[0].toolformer["calls"]
    prompt = f"User: {question}\nAssistant: [T({call['input']}) -> {call['response']}]"
    alone = Toolformer(lm, [])
    stop = ("\nUser:", "\nAssistant:")
    want = [GenerationSettings(max_new_tokens=16, top_k=0, temperature=0.8, seed=seed, stop=stop) for seed in (3, 4)]
    texts = [generation.text for generation in alone.generate([prompt, prompt], want)]
    alone.close()
    assert [choice.message.content for choice in answer.choices] == [text.removeprefix(" ") for text in texts]
    tokens = len(lm.hf_model.encode(f"User: {question}\nAssistant:")) + 1
    assert answer.usage.prompt_tokens == tokens


def test_the_ranking_is_that_of_the_core(lm: TransformersLM, tools: list[Tool]) -> None:
    """Same prompts, same model, same scores as `Grounder`, for hidden states and with calls that run."""
    weights = Weights(gamma=0.4)
    library = library_of(tools, undemonstrated=True)
    queries = ["What is seven of these?", "Which day is it?", "x"]
    with running(
        lambda: Toolformer(lm, tools, max_rows=4),
        max_rows=4,
        router=RouterSettings(library, weights=weights, grounding=SHORT),
    ) as server:
        told = []
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as asking:
            told = [router_of(chat(asking, query, {"date": "2020-02-02"})) for query in queries]
    grounder = Grounder(library, HFSmallLM(lm), HiddenStateEncoder(lm.hf_model, lm.digest), settings=SHORT)
    for got, want in zip(told, grounder.ground([Query(q, "2020-02-02") for q in queries]), strict=True):
        assert got["answer"] == want.answer
        for one, (score, total) in zip(got["ranking"], want.ranking(weights), strict=True):
            assert (one["tool"], one["call"], one["response"]) == (score.tool, score.call, score.response)
            assert one["failure"] == (score.failure or None)
            assert one["score"] == pytest.approx(total, abs=1e-5)


def test_a_tool_of_the_client_is_called_by_the_client(client: openai.OpenAI) -> None:
    answer = chat(client, "How is the weather?", tools=[ROBOT, WEATHER])
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (call,) = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "get-weather")
    arguments = json.loads(call.function.arguments)
    assert arguments.keys() == {"city"}
    assert arguments["city"].isdigit()  # what this model writes
    assert router_of(answer)["runs_it"] == "client"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_arguments_have_the_types_of_the_schema(client: openai.OpenAI) -> None:
    (call,) = chat(client, "Move the robot", tools=[ROBOT, WEATHER]).choices[0].message.tool_calls
    assert call.function.name == "move"
    assert isinstance(json.loads(call.function.arguments)["steps"], int)


def test_a_call_that_does_not_fit_its_schema_is_passed_over(client: openai.OpenAI) -> None:
    two = function("weather-of", "The weather, as enum.", {"city": {"enum": ["Rome", "Oslo"]}})
    answer = chat(client, "How is the weather?", tools=[two, WEATHER])
    assert answer.choices[0].message.tool_calls[0].function.name == "get-weather"
    (why,) = router_of(answer)["passed_over"].values()
    assert "is not one of Rome, Oslo" in why
    alone = chat(client, "How is the weather?", tools=[two])  # nothing is left above the threshold
    assert (alone.choices[0].finish_reason, alone.choices[0].message.tool_calls) == ("length", None)
    assert router_of(alone)["runs_it"] == "nobody"


def test_below_the_threshold_the_model_answers_alone(client: openai.OpenAI, lm: TransformersLM) -> None:
    # (1, 0) with (1, 3): 1 / sqrt(10) = 0.316, below 0.5
    answer = chat(client, "Hello", tools=[WEATHER])
    alone = Toolformer(lm, [])
    (want,) = alone.generate(
        ["User: Hello\nAssistant:"],
        GenerationSettings(max_new_tokens=16, top_k=0, stop=("\nUser:", "\nAssistant:")),
    )
    alone.close()
    assert answer.choices[0].message.content == want.text.removeprefix(" ")
    told = router_of(answer)
    assert (told["runs_it"], told["tool"]) == ("nobody", None)
    assert told["ranking"][0]["score"] == pytest.approx(0.316228)
    assert "reaches the threshold" in told["reason"]
    lower = chat(client, "Hello", {"threshold": 0.3}, tools=[WEATHER])
    assert router_of(lower)["runs_it"] == "server"


def test_the_pattern_score_ranks_by_the_response(lm: TransformersLM) -> None:
    """gamma 0: what counts is what the answer and the response are made of; a mock response stands for the latter.

    The client's tools differ in their mock responses alone, so equal counts give equal scores, and none gives 0.
    """
    sunny = function("sunny", "The weather.", **{"x-mock-response": "Sunny and warm."})
    mute = function("mute", "The weather.")
    with (
        running(
            lambda: Toolformer(lm, [], max_rows=4),
            max_rows=4,
            router=RouterSettings((), weights=Weights(gamma=0.0), grounding=SHORT, encoder=WordEncoder()),
        ) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as asking,
    ):
        told = router_of(chat(asking, "x", tools=[mute, sunny]))
    assert [one["tool"] for one in told["ranking"]] == ["client:sunny", "client:mute"]
    assert told["ranking"][1]["score"] == 0.0
    assert told["ranking"][0]["score"] > 0.0


def test_a_mocked_tool_runs_only_if_it_is_chosen(client: openai.OpenAI, tools: list[Tool]) -> None:
    _, mocked = tools
    before = len(mocked.asked)
    chat(client, "What is seven of these?")
    assert len(mocked.asked) == before
    answer = chat(client, "Which day is it?", {"date": "2020-02-02"})
    assert len(mocked.asked) == before + 1
    (call,) = answer.choices[0].toolformer["calls"]
    assert call["response"] == f"2020-02-02 after {call['input']}" == answer.choices[0].message.content
    (ranked,) = [one for one in router_of(answer)["ranking"] if one["tool"] == "days"]
    assert (ranked["mock"], ranked["response"]) == (True, "2020-01-01")


def test_tool_choice(client: openai.OpenAI) -> None:
    def calls(choice: Any, tools: Sequence[dict[str, Any]] | None = (WEATHER, ROBOT)) -> list[str]:
        given = {} if tools is None else {"tools": tools}
        message = chat(client, "What is seven of these?", tool_choice=choice, **given).choices[0].message
        return [call.function.name for call in message.tool_calls or []]

    assert calls("none") == []
    assert calls("auto") == []  # the server's own tool answers
    assert calls("required") == ["get-weather"]  # of the client's; both score 0.1, and the first one wins
    assert calls({"type": "function", "function": {"name": "move"}}) == ["move"]
    own = chat(client, "x", tool_choice={"type": "function", "function": {"name": "sevens"}})
    assert own.choices[0].toolformer["calls"][0]["tool"] == "T"
    silent = chat(client, "What is seven of these?", tool_choice="none", tools=[WEATHER])
    assert silent.choices[0].toolformer["calls"] == []
    assert chat(client, "x", tool_choice="required").choices[0].toolformer["calls"]


def test_our_own_tools_can_be_left_out(client: openai.OpenAI) -> None:
    for own in ({"k": 0}, {"max_calls": 0}, {"tools": []}):
        told = router_of(chat(client, "What is seven of these?", own, tools=[WEATHER]))
        assert [one["tool"] for one in told["ranking"]] == ["client:get-weather"]
    told = router_of(chat(client, "What is seven of these?", {"tools": ["days"]}))
    assert [one["tool"] for one in told["ranking"]] == ["days"]


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
        ("What is seven of these?", {"answer": "text"}),
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
        assert told["router"]["ranking"] == same["router"]["ranking"]
        assert len({piece.id for piece in pieces if piece.id}) == len(want.message.tool_calls or [])


def test_the_client_s_own_helper_reads_the_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=NAME, messages=[{"role": "user", "content": "How is the weather?"}], tools=[WEATHER]
    ) as stream:
        (call,) = stream.get_final_completion().choices[0].message.tool_calls or []
    assert call.function.name == "get-weather"


def test_the_ranking_is_told_only_if_it_is_asked_for(client: openai.OpenAI) -> None:
    for text in ("What is seven of these?", "How is the weather?", "Hello"):
        answer = chat(client, text, {"explain": False}, tools=[WEATHER])
        assert "router" not in answer.choices[0].toolformer


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


MESSAGE = {"role": "user", "content": "x"}
CALLED = {
    "role": "assistant",
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name"),
        ({"tools": [WEATHER] * 129}, "tools"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"tools": [function("a b", "x")]}, "tools[0].function"),
        ({"tools": [function("f", "\ud800")]}, "tools[0].function"),
        ({"tools": [function("f", "x", {"a": {"type": "text"}})]}, "tools[0].function.parameters"),
        ({"tools": [function("f", "x", {"a": {"$ref": "http://localhost/x"}})]}, "tools[0].function.parameters"),
        ({"tool_choice": "some"}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "absent"}}}, "tool_choice"),
        ({"tool_choice": "required", "toolformer": {"k": 0}}, "tool_choice"),
        ({"messages": [{"role": "user", "content": " "}], "tool_choice": "required"}, "messages"),
        ({"messages": [MESSAGE, {"role": "tool", "tool_call_id": "1", "content": "x"}]}, "messages[1].tool_call_id"),
        ({"messages": [MESSAGE, CALLED]}, "messages[1]"),
        ({"messages": [MESSAGE, CALLED, MESSAGE]}, "messages[1]"),
        ({"messages": [MESSAGE, {"role": "assistant", "tool_calls": [{"id": "1"}]}]}, "messages[1].tool_calls[0]"),
        ({"toolformer": {"tools": ["abacus"]}}, "toolformer.tools"),
        ({"toolformer": {"answer": "poem"}}, "toolformer.answer"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"n": 69}, None),  # more choices than places
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_refused(server: ModelServer, more: dict[str, Any], param: str | None) -> None:
    body = json.dumps({"model": NAME, "messages": [MESSAGE], "max_tokens": 2, **more})
    refused = httpx.post(
        f"{server.url}/v1/chat/completions", content=body, headers={"content-type": "application/json"}, timeout=30
    )
    assert refused.status_code == 400, refused.text
    error = refused.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert (error["param"] or "").startswith(param or "")
    assert bool(error["param"]) == bool(param)


def test_a_demanded_call_that_cannot_be_written(client: openai.OpenAI) -> None:
    two = function("weather-of", "The weather.", {"city": {"enum": ["Rome", "Oslo"]}})
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, "How is the weather?", tools=[two], tool_choice="required")
    assert (caught.value.code, caught.value.param) == ("tool_use_failed", "tool_choice")
    assert "Rome" in caught.value.message


def test_metrics_and_the_model_s_card(client: openai.OpenAI, server: ModelServer) -> None:
    def count(labels: str) -> float:
        text = httpx.get(f"{server.url}/metrics").text
        lines = [line for line in text.splitlines() if line.startswith(f"toolformer_routed_requests_total{{{labels}}}")]
        return sum(float(line.split()[-1]) for line in lines)

    sides = ('runs_it="server",tool="T"', 'runs_it="client",tool=""', 'runs_it="nobody",tool=""')
    before = [count(side) for side in sides]
    for text in ("What is seven of these?", "How is the weather?", "Hello"):
        chat(client, text, tools=[WEATHER])
    assert [count(side) for side in sides] == [n + 1 for n in before]
    assert "toolformer_router_seconds_count" in httpx.get(f"{server.url}/metrics").text
    assert server.engine_thread.taken == 0
    (card,) = client.models.list().data
    assert card.toolformer["router"]["name"] == "gear"  # type: ignore[attr-defined]


def test_a_tool_that_fails_is_passed_over(lm: TransformersLM) -> None:
    failing = Tool("sevens", "T", "Seven times a number.", lambda input, context: ToolFailure("broken", "no battery"))
    with (
        running(
            lambda: Toolformer(lm, [failing], max_rows=4), max_rows=4, router=settings([failing], mock=())
        ) as server,
        openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as asking,
    ):
        answer = chat(asking, "What is seven of these?")
    assert answer.choices[0].finish_reason == "length"
    told = router_of(answer)
    assert told["passed_over"] == {"sevens": "broken no battery"}
    assert (told["runs_it"], told["ranking"][0]["failure"]) == ("nobody", "broken")


def test_many_requests_at_once_get_what_each_gets_alone(server: ModelServer, client: openai.OpenAI) -> None:
    texts = ["What is seven of these?", "How is the weather?", "Hello", "Which day is it?"]
    alone = {text: chat(client, text, tools=[WEATHER]).choices[0].message.content for text in texts}

    async def ask_all() -> list[tuple[str, str | None]]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as asking:

            async def ask(text: str) -> tuple[str, str | None]:
                found = await asking.chat.completions.create(
                    model=NAME,
                    messages=[{"role": "user", "content": text}],
                    max_tokens=16,
                    tools=[WEATHER],  # type: ignore[list-item]
                )
                return text, found.choices[0].message.content

            return list(await asyncio.gather(*(ask(text) for text in texts * 4)))

    assert all(content == alone[text] for text, content in asyncio.run(ask_all()))
    assert server.engine_thread.taken == 0


def test_a_client_that_leaves_while_its_tools_are_ranked_gives_its_places_back(lm: TransformersLM) -> None:
    asked, let_go = threading.Event(), threading.Event()

    def hang(input: str, context: str) -> str:
        asked.set()
        let_go.wait()
        return "late"

    tool = Tool("sevens", "T", "Seven times a number.", hang)
    load = lambda: Toolformer(lm, [tool], max_rows=4, tool_timeout_s=60)  # noqa: E731
    with running(load, max_rows=4, router=settings([tool], mock=())) as server:
        content = json.dumps({"model": NAME, "messages": [MESSAGE], "max_tokens": 2}).encode()
        head = "POST /v1/chat/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json"
        with socket.create_connection(address_of(server)) as connection:
            connection.sendall("\r\n".join((*head, f"Content-Length: {len(content)}", "", "")).encode() + content)
            assert asked.wait(30)
        left = 'toolformer_requests_total{endpoint="/v1/chat/completions",status="499"} 1.0'
        until(lambda: left in httpx.get(f"{server.url}/metrics").text, "the client's leaving")
        assert server.engine_thread.taken == 0
        let_go.set()


def test_a_tool_that_hangs_is_given_up_in_time(lm: TransformersLM) -> None:
    let_go = threading.Event()
    tool = Tool("sevens", "T", "Seven times a number.", lambda input, context: str(let_go.wait()))
    load = lambda: Toolformer(lm, [tool], max_rows=4, tool_timeout_s=0.2)  # noqa: E731
    with running(load, max_rows=4, router=settings([tool], mock=())) as server:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as asking:
            told = router_of(chat(asking, "What is seven of these?"))
        let_go.set()
    assert told["passed_over"]["sevens"].startswith("timeout")


def test_another_small_model_ranks_and_the_servers_model_writes_the_call(lm: TransformersLM, tools: list[Tool]) -> None:
    """The small model writes no call of T, so it has none to rank by; the call that runs is the server's model's."""
    small = writing_lm("gpt2", tokenizer(), [], seed=1)
    router = settings(tools, load=lambda: Toolformer(small, [], max_rows=2), model="small", max_rows=2)
    with running(lambda: Toolformer(lm, tools, max_rows=4), max_rows=4, router=router) as server:
        until(lambda: httpx.get(f"{server.url}/health/ready").status_code == 200, "both models")
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as asking:
            answer = chat(asking, "What is seven of these?")
    told = router_of(answer)
    (ranked,) = [one for one in told["ranking"] if one["tool"] == "sevens"]
    assert (told["model"], ranked["failure"]) == ("small", "no_call")
    (call,) = answer.choices[0].toolformer["calls"]
    assert call["response"] == f"it is {7 * int(call['input'])}"


def test_a_small_model_that_cannot_be_loaded_ends_the_server(lm: TransformersLM, tools: list[Tool]) -> None:
    def fail() -> Toolformer:
        raise ModelError("no such weights")

    server = ModelServer(
        ServerSettings(NAME, port=0, router=settings(tools, load=fail, model="small")), lambda: Toolformer(lm, tools)
    )
    with pytest.raises(ModelError, match="no such weights"):
        server.serve_until_ended()


def test_without_the_router_nothing_speaks_of_it(lm: TransformersLM, tools: list[Tool]) -> None:
    with running(lambda: Toolformer(lm, tools, max_rows=4), max_rows=4) as server:
        for path in ("/metrics", "/openapi.json", "/v1/models"):
            assert "rout" not in httpx.get(f"{server.url}{path}").text.lower()
        refused = httpx.post(
            f"{server.url}/v1/chat/completions",
            json={"model": NAME, "messages": [MESSAGE], "toolformer": {"explain": True}},
        )
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "toolformer.explain")


def test_a_request_whose_tools_are_ranked_is_answered_while_the_server_ends(lm: TransformersLM) -> None:
    asked, let_go = threading.Event(), threading.Event()

    def slow(input: str, context: str) -> str:
        asked.set()
        let_go.wait()
        return "at last"

    tool = Tool("sevens", "T", "Seven times a number.", slow)
    load = lambda: Toolformer(lm, [tool], max_rows=4, tool_timeout_s=60)  # noqa: E731
    found: list[httpx.Response] = []
    with running(load, max_rows=4, grace_s=DEADLINE_S, router=settings([tool], mock=())) as server:
        body = {"model": NAME, "messages": [{"role": "user", "content": "seven"}], "toolformer": {"answer": "text"}}

        def ask() -> None:
            found.append(httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60))

        asking = threading.Thread(target=ask)
        asking.start()
        assert asked.wait(DEADLINE_S)
        server.end()
        until(lambda: server.engine_thread.state == "draining", "the end")
        let_go.set()
        asking.join(DEADLINE_S)
    assert found[0].status_code == 200, found[0].text
    (call,) = found[0].json()["choices"][0]["toolformer"]["calls"]
    assert call["response"] == "at last"
