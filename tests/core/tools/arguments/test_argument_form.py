from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.tools.arguments.form import ArgumentForm, BadInput


def form(required: dict[str, Any], optional: dict[str, Any] | None = None, **more: Any) -> ArgumentForm:
    properties = {**required, **(optional or {})}
    return ArgumentForm({"type": "object", "properties": properties, "required": list(required), **more})


STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
NONE = form({})
ONE = form({"timezone": STRING})
ONE_AND_OTHERS = form({"query": STRING}, {"limit": INTEGER, "lang": STRING})
SEVERAL = form({"source": STRING, "target": STRING, "amount": NUMBER}, {"day": STRING})
ONLY_OPTIONAL = form({}, {"limit": INTEGER})
ODD = form({"query": STRING}, dict.fromkeys(("$top", "@type", "page size", "2d", "filter[x]"), STRING))
OPTIONALS = form({}, {"limit": INTEGER, "lang": STRING})


@pytest.mark.parametrize(
    ("asked", "text", "arguments"),
    [
        (NONE, "", {}),
        (ONE, "Europe/Paris", {"timezone": "Europe/Paris"}),
        (ONE, " a, b=c ", {"timezone": " a, b=c "}),  # as it is
        (ONE, "timezone=x", {"timezone": "timezone=x"}),  # the only argument: never by name
        (ONE_AND_OTHERS, "red panda, limit=3", {"query": "red panda, limit=3"}),  # does not begin with NAME=
        (ONE_AND_OTHERS, "query == x", {"query": "query == x"}),  # == is no =
        (ONE_AND_OTHERS, "lang = en , query = a = b", {"lang": "en", "query": "a = b"}),
        (SEVERAL, "amount=1,500,source=a,target=b", {"source": "a", "target": "b", "amount": 1500}),
        (SEVERAL, "source=Paris, France, target=Rome, Italy, amount=2", {"source": "Paris, France",
         "target": "Rome, Italy", "amount": 2}),
        (SEVERAL, "source=f(a, day=1), target=[x, day=2], amount=0", {"source": "f(a, day=1)",
         "target": "[x, day=2]", "amount": 0}),
        (SEVERAL, 'source={"a": "}, day=3"}, target=b, amount=1', {"source": '{"a": "}, day=3"}',
         "target": "b", "amount": 1}),
        (SEVERAL, "source=don't, target=\"say\", amount=1", {"source": "don't", "target": "say", "amount": 1}),
        (SEVERAL, 'source="a, day=\\"4\\" \\\\ \\n", target=\'it\\\'s\', amount="5"',
         {"source": 'a, day="4" \\ \\n', "target": "it's", "amount": 5}),
        (SEVERAL, "source=:), target=a (b, amount=c), amount=1", {"source": ":)", "target": "a (b, amount=c)",
         "amount": 1}),
        (ODD, "@type=Cat, filter[x]=1, query=a, 3d=b", {"@type": "Cat", "filter[x]": "1", "query": "a, 3d=b"}),
        (ONLY_OPTIONAL, "5", {"limit": 5}),
        (OPTIONALS, "", {}),
        (OPTIONALS, "lang=en", {"lang": "en"}),
    ],
)  # fmt: skip
def test_an_input_becomes_arguments(asked: ArgumentForm, text: str, arguments: dict[str, Any]) -> None:
    assert asked.arguments(text) == arguments


@pytest.mark.parametrize(
    ("asked", "text", "says"),
    [
        (NONE, "now", "takes no arguments"),
        (ONE, "", "timezone is missing: write timezone"),
        (ONE, "\ud800", "lone surrogate"),
        (ONE_AND_OTHERS, "query=a, limit=b", "limit: 'b' is not integer"),
        (SEVERAL, "", "source is missing: write source=..., target=..., amount=..."),
        (SEVERAL, "EUR", "no name and '='"),
        (SEVERAL, "source=EUR, traget=USD", "no argument 'traget'; there are source, target, amount, day"),
        (SEVERAL, "source=a, source=b, amount=1", "'source' is given twice"),
        (SEVERAL, 'source="a" b, target=c', "not a comma and a name"),
        (SEVERAL, "source=(a, target=c", "a bracket is not closed"),
        (form({"s": {"type": "string", "pattern": "^[a-z]+$"}}), "A1", "does not match"),
        (form({"o": {"type": "array"}}), "[" * 5000 + "]" * 5000, "not JSON|nested too deeply"),
    ],
)
def test_another_input_is_refused(asked: ArgumentForm, text: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        asked.arguments(text)


def _quoted(text: str, quote: str) -> str:
    return quote + text.replace("\\", "\\\\").replace(quote, f"\\{quote}") + quote


TEXTS = st.text(st.sampled_from("ab=, \"'\\()[]{}\n") | st.characters(exclude_categories=["Cs"]), max_size=12)


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "long-name", "$top", "page size", "2d", "filter[x]"]), TEXTS, min_size=2
    ),
    st.sampled_from("\"'"),
)
def test_a_value_in_quotes_may_hold_everything(values: dict[str, str], quote: str) -> None:
    text = ", ".join(f"{name}={_quoted(value, quote)}" for name, value in values.items())
    assert form(dict.fromkeys(values, STRING)).arguments(text) == values


@given(TEXTS)
def test_the_only_argument_takes_every_text(text: str) -> None:
    if text.strip():
        assert ONE.arguments(text) == {"timezone": text}


@given(TEXTS)
def test_no_input_is_read_otherwise_than_with_arguments_or_a_reason(text: str) -> None:
    for asked in (NONE, ONE_AND_OTHERS, SEVERAL, OPTIONALS):
        try:
            arguments = asked.arguments(text)
        except BadInput:
            continue
        assert set(asked.required) <= set(arguments) <= {*asked.required, *asked.optional}


@pytest.mark.parametrize(
    ("asked", "template", "sentence"),
    [
        (NONE, "", "The input is empty."),
        (ONE, "timezone", "The input is the argument `timezone` (text)."),
        (
            ONE_AND_OTHERS,
            "query",
            "The input is the argument `query` (text); with others it is written `query=..., limit=...` "
            "(optional: limit, lang).",
        ),
        (OPTIONALS, "limit=..., lang=...", "The input is written `limit=..., lang=...` (optional: limit, lang)."),
    ],
)
def test_the_form_of_an_input_is_said_in_a_sentence(asked: ArgumentForm, template: str, sentence: str) -> None:
    assert (asked.template, asked.sentence) == (template, sentence)


def test_a_schema_that_is_none_checks_nothing() -> None:
    assert form({"n": {"type": "string", "minLength": "three"}}).arguments("x") == {"n": "x"}
    assert form({"n": {"$ref": "https://example.org/schema"}}).arguments("x") == {"n": "x"}
    assert ArgumentForm({"type": "object"}).arguments("") == {}


def test_an_array_of_itself_is_read_as_json_or_refused() -> None:
    tree = {"type": "array", "items": {"$ref": "#/$defs/tree"}}
    asked = form({"tree": {"$ref": "#/$defs/tree"}}, **{"$defs": {"tree": tree}})
    assert asked.arguments("[[], [[]]]") == {"tree": [[], [[]]]}
    with pytest.raises(BadInput, match="tree: 'a' is not array"):
        asked.arguments("a, b")
