"""Parts of the router, worked out by hand: arguments, conversations, schemas, embeddings that are kept."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.chat import ChatPrompt
from serving.errors import RequestError
from serving.openai_format import ResponseForm
from serving.routing.chat import _plain
from serving.routing.client_tools import ClientTool, call_input, client_tools_of, name_in_calls
from serving.routing.conversation import conversation_of
from serving.routing.schemas import FunctionTool, RoutedMessage
from toolformer_core.grounding.library import LibraryTool
from toolformer_core.syntax import is_tool_name
from toolformer_core.tools.arguments.form import BadInput
from toolformer_core.tools.schema_check import SchemaProblem, checker

CITY = {"city": {"type": "string", "pattern": "^[A-Z]"}}
TRIP = {"source": {"type": "string"}, "target": {"type": "string"}, "days": {"type": "integer", "minimum": 1}}


def library_tool(properties: dict[str, Any] | None, name: str = "f", **more: Any) -> LibraryTool:
    parameters: dict[str, Any] | None = None
    if properties is not None:
        parameters = {"type": "object", "properties": properties, "required": list(properties), **more}
        parameters.setdefault("additionalProperties", False)
    function = {"name": name, "description": "Does it.", "parameters": parameters}
    (found,) = client_tools_of([FunctionTool.model_validate({"type": "function", "function": function})])
    return found


def client_tool(properties: dict[str, Any] | None, **more: Any) -> ClientTool:
    tool = library_tool(properties, **more).tool
    assert isinstance(tool, ClientTool)
    return tool


@pytest.mark.parametrize(
    ("properties", "text", "arguments"),
    [
        (CITY, "Paris, France", {"city": "Paris, France"}),
        (CITY, '{"city": "Paris"}', {"city": "Paris"}),
        ({"city": {"type": "string"}}, '{"town": "Paris"}', {"city": '{"town": "Paris"}'}),  # a text like any other
        (TRIP, "source=Rome, target=Oslo, days=3", {"source": "Rome", "target": "Oslo", "days": 3}),
        (TRIP, '{"source": "Rome", "target": "Oslo", "days": 3}', {"source": "Rome", "target": "Oslo", "days": 3}),
        (None, "", {}),
    ],
)
def test_arguments(properties: dict[str, Any] | None, text: str, arguments: dict[str, Any]) -> None:
    assert json.loads(client_tool(properties).arguments(text)) == arguments


@pytest.mark.parametrize(
    ("properties", "text", "said"),
    [
        (CITY, "paris", "does not match"),
        (TRIP, '{"source": "Rome", "target": "Oslo", "days": 0}', "minimum"),
        ({"steps": {"type": "number"}}, '{"steps": NaN}', "not number"),
        ({"city": {"type": "string", "pattern": "^(a|a)*$"}}, "a" * 60 + "b", "does not match"),
    ],
)
def test_an_input_that_gives_no_arguments(properties: dict[str, Any] | None, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        client_tool(properties).arguments(text)


VALUES = st.fixed_dictionaries({"source": st.text(), "target": st.text(), "days": st.integers(1, 10**9)})


@given(VALUES)
def test_arguments_written_as_an_input_are_read_back(values: dict[str, Any]) -> None:
    assert json.loads(client_tool(TRIP).arguments(call_input(values))) == values


@given(st.text(alphabet=st.characters(codec="ascii", categories=("L", "N"), include_characters="_-"), min_size=1))
def test_every_function_has_a_name_that_calls_can_hold(name: str) -> None:
    assert is_tool_name(name_in_calls(name))


def test_what_the_model_reads_of_a_client_s_tool() -> None:
    examples = [{"source": "Rome", "target": "Oslo", "days": 2}, "none", {}]
    one = library_tool(TRIP, "plan-trip", examples=examples)
    assert one.demonstrations.prompt.head + one.demonstrations.after_head("Where to?") == (
        "Does it. The input is written `source=..., target=..., days=...`. For example: "
        '[plan_trip({"source": "Rome", "target": "Oslo", "days": 2})] [plan_trip()]\n'
        "A call is written [plan_trip(source=..., target=..., days=...)].\n\nQuestion: Where to?\nCall:"
    )
    assert (one.mocked, one.mock_response, one.tool.run("x").reason) == (True, "", "not_enabled")  # type: ignore[union-attr]


def test_a_mock_response_may_stand_in_the_function_or_its_parameters() -> None:
    def of(**function: Any) -> str:
        given = {"type": "function", "function": {"name": "f", **function}}
        return client_tools_of([FunctionTool.model_validate(given)])[0].mock_response

    assert of(**{"x-mock-response": "18\ndegrees [C]"}) == "18 degrees (C)"
    assert of(parameters={"x-mock-response": {"degrees": 18}}) == '{"degrees": 18}'
    assert of(parameters={}) == of() == ""


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "string"}, "'object'"),
        ({"properties": []}, "properties"),
        ({"properties": {"a": {"pattern": "["}}}, "'\\['"),
        ({"properties": {"a": {"pattern": "a" * 1001}}}, "properties.a.pattern"),
        ({"$ref": "#/$defs/a"}, "leads nowhere"),
        ({"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}}, "anchor"),
        ({"properties": {"a": {"enum": ["\ud800"]}}}, "UTF-8"),
        (
            {"$defs": {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(20)} | {"a20": {}}},
            "too much",
        ),
    ],
)
def test_a_schema_that_cannot_be_used(schema: dict[str, Any], said: str) -> None:
    function = {"type": "function", "function": {"name": "f", "parameters": schema}}
    with pytest.raises(RequestError, match=said) as caught:
        client_tools_of([FunctionTool.model_validate(function)])
    assert (caught.value.status, caught.value.param) == (400, "tools[0].function.parameters")


def test_a_schema_that_is_nested_too_deeply() -> None:
    schema: dict[str, Any] = {}
    for _ in range(200):
        schema = {"properties": {"a": schema}}
    with pytest.raises(SchemaProblem, match="deep"):
        checker(schema)


def test_a_schema_may_refer_to_itself() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "additionalProperties": False}
    check = checker({"$ref": "#/$defs/node", "$defs": {"node": node}})
    assert check({"next": {"next": {}}}) == ""
    assert "was unexpected" in check({"next": {"other": 1}})


def messages(*given: dict[str, Any]) -> list[RoutedMessage]:
    return [RoutedMessage.model_validate(one) for one in given]


def called(id_: str, name: str, arguments: str, content: str | None = None) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [{"id": id_, "type": "function", "function": function}],
    }


def test_a_conversation_with_calls() -> None:
    found = conversation_of(
        messages(
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": "How warm is\nit in Paris?"},
            called("1", "get-weather", '{"city": "Paris"}', "I look."),
            {"role": "tool", "tool_call_id": "1", "content": "18 [C]"},
            called("2", "log", '{"a": 1, "b": [2]}'),
            {"role": "tool", "tool_call_id": "2", "content": [{"type": "text", "text": "done\nnow"}]},
            {"role": "assistant", "content": "It is 18."},
            {"role": "user", "content": "And in Rome?"},
            called("3", "get-weather", "Rome"),
            {"role": "tool", "tool_call_id": "3", "content": "25"},
        )
    )
    assert found.turns == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How warm is\nit in Paris?"},
        {
            "role": "assistant",
            "content": 'I look. [get_weather(Paris) -> 18 (C)] [log({"a": 1, "b": [2]}) -> done now] It is 18.',
        },
        {"role": "user", "content": "And in Rome?"},
    ]
    assert (found.opening, found.query) == ("[get_weather(Rome) -> 25]", "And in Rome?")


def test_results_that_a_user_speaks_after_are_the_assistant_s_turn() -> None:
    found = conversation_of(
        messages(
            {"role": "user", "content": "a"},
            called("1", "f", "{}"),
            {"role": "tool", "tool_call_id": "1", "content": "x"},
            {"role": "user", "content": "b"},
        )
    )
    assert [turn["content"] for turn in found.turns] == ["a", "[f() -> x]", "b"]
    assert (found.opening, found.query) == ("", "b")


def test_a_result_can_be_given_once() -> None:
    result = {"role": "tool", "tool_call_id": "1", "content": "x"}
    with pytest.raises(RequestError) as caught:
        conversation_of(messages({"role": "user", "content": "a"}, called("1", "f", "{}"), result, result))
    assert caught.value.param == "messages[3].tool_call_id"


@pytest.mark.parametrize(
    ("prompt", "opening", "text"),
    [
        (ChatPrompt("User: a\nAssistant:", leading_space=True), "[f() -> x]", "User: a\nAssistant: [f() -> x]"),
        (ChatPrompt("<user>a<assistant>"), "[f() -> x]", "<user>a<assistant>[f() -> x]"),
        (ChatPrompt("<user>a<assistant>"), "", "<user>a<assistant>"),
    ],
)
def test_results_open_the_answer(prompt: ChatPrompt, opening: str, text: str) -> None:
    form = ResponseForm(chat=True, model="m", fingerprint="fp", choices=2)
    planned = _plain(prompt, opening, [], form)
    assert planned.prompts == [text, text]
    assert planned.writer._form.leading_space == (prompt.leading_space or bool(opening))
