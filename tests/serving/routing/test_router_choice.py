"""The server with its router on, asked by OpenAI's own client: which tool answers."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from serving.server import ModelServer
from serving.settings import RouterSettings
from tests.core.decode.writers import writing_lm
from tests.serving.routed import (
    ROBOT,
    ROUTES,
    SHORT,
    WEATHER,
    Tool,
    WordEncoder,
    asking,
    calling_lm,
    chat,
    function,
    ranking,
    settings,
)
from tests.serving.servers import model_server
from tests.tiny import tokenizer
from toolformer_core.decode.records import GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.grounding.encoders import HiddenStateEncoder
from toolformer_core.grounding.ground import Grounder
from toolformer_core.grounding.library import library_of
from toolformer_core.grounding.records import Query, Weights
from toolformer_core.grounding.small_lm import HFSmallLM
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.tokens import encode_following

SCORES = (("sevens", 1.0), ("days", 0.1), ("client:get-weather", 0.1))


def test_a_tool_of_the_server_answers(client: openai.OpenAI, tools: list[Tool]) -> None:
    answer = chat(client, "What is seven of these?", tools=[WEATHER])
    (choice,) = answer.choices
    (call,) = choice.toolformer["calls"]
    assert (call["tool"], call["response"]) == ("T", f"it is {7 * int(call['input'])}")
    assert (choice.message.content, choice.finish_reason) == (call["response"], "stop")
    assert choice.message.tool_calls is None
    assert ROUTES[-1].runs_it == "server"
    # (1, 3) with (1, 3) on the same axis: 1; (1, 3) with (1, 3) on another one: 1 / 10
    assert ranking() == [(tool, pytest.approx(f)) for tool, f in SCORES]
    assert tools[0].asked.count((call["input"], tools[0].asked[-1][1])) >= 1
    assert answer.usage.completion_tokens > 0


def test_the_ranking_is_that_of_the_core(tools: list[Tool]) -> None:
    """Same prompts, same model, same scores as `Grounder`, for hidden states and with calls that run."""
    lm, weights = calling_lm(names="TU"), Weights(gamma=0.4)
    library = library_of(tools, undemonstrated=True)
    queries = ["What is seven of these?", "Which day is it?", *"abcdefgh"]
    with (
        model_server(lm, tools, router=RouterSettings(library, weights=weights, grounding=SHORT)) as server,
        asking(server) as own,
    ):
        for query in queries:
            chat(own, query, {"date": "2020-02-02"})
    decided = [route.grounding for route in ROUTES[-len(queries) :]]
    grounder = Grounder(library, HFSmallLM(lm), HiddenStateEncoder(lm.hf_model, lm.digest), settings=SHORT)
    for got, want in zip(decided, grounder.ground([Query(q, "2020-02-02") for q in queries]), strict=True):
        assert got is not None
        assert got.answer == want.answer
        for (mine, score), (its, total) in zip(got.ranking(weights), want.ranking(weights), strict=True):
            assert (mine.tool, mine.call, mine.response) == (its.tool, its.call, its.response)
            assert (mine.failure, score) == (its.failure, pytest.approx(total, abs=1e-5))
    called = {score.tool for one in decided if one is not None for score in one.scores if score.call}
    assert called == {"sevens", "days"}  # the comparison was not of empty calls


def test_a_tool_of_the_client_is_called_by_the_client(client: openai.OpenAI) -> None:
    answer = chat(client, "How is the weather?", tools=[ROBOT, WEATHER])
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (call,) = choice.message.tool_calls
    assert (call.type, call.function.name) == ("function", "get-weather")
    arguments = json.loads(call.function.arguments)
    assert arguments.keys() == {"city"}
    assert arguments["city"].isdigit()  # what this model writes
    assert ROUTES[-1].runs_it == "client"
    assert answer.usage.completion_tokens == len(encode_following(tokenizer(), f" [get_weather({arguments['city']})]"))
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_call_that_does_not_fit_its_schema_is_passed_over(client: openai.OpenAI) -> None:
    two = function("weather-of", "The weather, as enum.", {"city": {"enum": ["Rome", "Oslo"]}})
    answer = chat(client, "How is the weather?", tools=[two, WEATHER])
    assert answer.choices[0].message.tool_calls[0].function.name == "get-weather"
    (why,) = ROUTES[-1].rejected_tools.values()
    assert "is not one of Rome, Oslo" in why
    alone = chat(client, "How is the weather?", tools=[two])  # nothing is left above the threshold
    assert (alone.choices[0].finish_reason, alone.choices[0].message.tool_calls) == ("length", None)
    assert ROUTES[-1].runs_it == "nobody"


def test_below_the_threshold_the_model_answers_alone(client: openai.OpenAI, lm: TransformersLM) -> None:
    # (1, 0) with (1, 3): 1 / sqrt(10) = 0.316, below 0.5
    answer = chat(client, "Hello", tools=[WEATHER])
    alone = Toolformer(lm, [])
    (want,) = alone.generate(
        ["User: Hello\nAssistant:"], GenerationSettings(max_new_tokens=16, top_k=0, stop=("\nUser:", "\nAssistant:"))
    )
    alone.close()
    assert answer.choices[0].message.content == want.text.removeprefix(" ")
    assert ROUTES[-1].runs_it == "nobody"
    assert ranking()[0][1] == pytest.approx(0.316228)
    chat(client, "Hello", {"threshold": 0.3}, tools=[WEATHER])
    assert ROUTES[-1].runs_it == "server"


def test_the_pattern_score_ranks_by_the_response(lm: TransformersLM) -> None:
    """gamma 0: what counts is what the answer and the response are made of; a mock response stands for the latter.

    The client's tools differ in their mock responses alone, so equal counts give equal scores, and none gives 0.
    """
    sunny = function("sunny", "The weather.", **{"x-mock-response": "Sunny and warm."})
    mute = function("mute", "The weather.")
    router = RouterSettings((), weights=Weights(gamma=0.0), grounding=SHORT, encoder=WordEncoder())
    with model_server(lm, router=router) as server, asking(server) as own:
        chat(own, "x", tools=[mute, sunny])
    (first, score), last = ranking(Weights(gamma=0.0))
    assert (first, last) == ("client:sunny", ("client:mute", 0.0))
    assert score > 0.0


def test_a_mocked_tool_runs_only_if_it_is_chosen(client: openai.OpenAI, tools: list[Tool]) -> None:
    _, mocked = tools
    before = len(mocked.asked)
    chat(client, "What is seven of these?")
    assert len(mocked.asked) == before
    answer = chat(client, "Which day is it?", {"date": "2020-02-02"})
    assert len(mocked.asked) == before + 1
    (call,) = answer.choices[0].toolformer["calls"]
    assert call["response"] == f"2020-02-02 after {call['input']}" == answer.choices[0].message.content
    assert ROUTES[-1].grounding is not None
    (ranked,) = [one for one in ROUTES[-1].grounding.scores if one.tool == "days"]
    assert (ranked.mock, ranked.response) == (True, "2020-01-01")


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
        chat(client, "What is seven of these?", own, tools=[WEATHER])
        assert [tool for tool, _ in ranking()] == ["client:get-weather"]
    chat(client, "What is seven of these?", {"tools": ["days"]})
    assert [tool for tool, _ in ranking()] == ["days"]


def test_many_requests_at_once_get_what_each_gets_alone(server: ModelServer, client: openai.OpenAI) -> None:
    texts = ["What is seven of these?", "How is the weather?", "Hello", "Which day is it?"]
    alone = {text: chat(client, text, tools=[WEATHER]).choices[0].message.content for text in texts}
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda text: chat(client, text, tools=[WEATHER]), texts * 4))
    assert [answer.choices[0].message.content for answer in answers] == [alone[text] for text in texts * 4]
    assert server.engine_thread.taken == 0


@pytest.mark.parametrize("knows_calls", [True, False])
def test_another_small_model_ranks(lm: TransformersLM, tools: list[Tool], knows_calls: bool) -> None:
    """The small model's call is what T is ranked by, if it writes one; the call that runs is the server's model's."""
    small = calling_lm("gpt2", 3) if knows_calls else writing_lm("gpt2", tokenizer(), [], seed=1)
    router = settings(tools, load=lambda: Toolformer(small, [], max_rows=2), model="small", max_rows=2)
    with model_server(lm, tools, router=router) as server, asking(server) as own:
        answer = chat(own, "What is seven of these?")
        grounding = ROUTES[-1].grounding
        demanded = chat(
            own, "What is seven of these?", tool_choice={"type": "function", "function": {"name": "sevens"}}
        )
    assert grounding is not None
    (ranked,) = [one for one in grounding.scores if one.tool == "sevens"]
    (call,) = answer.choices[0].toolformer["calls"]
    assert ranked.failure == ("" if knows_calls else "no_call")
    assert ranked.call != call["input"]
    assert call["response"] == f"it is {7 * int(call['input'])}"
    assert call["input"] == demanded.choices[0].toolformer["calls"][0]["input"]  # which only the server's model writes


def test_without_a_question_there_is_nothing_to_choose(client: openai.OpenAI) -> None:
    for messages in ([{"role": "system", "content": "seven"}], [{"role": "user", "content": " \n"}]):
        chat(client, messages, tools=[WEATHER])
        assert (ROUTES[-1].runs_it, ranking()) == ("nobody", [])
