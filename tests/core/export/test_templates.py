"""Chat templates that lose a part of a conversation are refused before anything is rendered with them."""

from typing import Any

import pytest

from tests.support.examples_of_c_star import CHATML
from tests.tiny import tokenizer
from toolformer_core.errors import UsageError
from toolformer_core.export.dialects import check_template, special_tokens_in


@pytest.fixture
def own() -> Any:
    """A tokenizer that may be given a template; the others of this process have none."""
    given = tokenizer()
    yield given
    given.chat_template = None


@pytest.mark.parametrize(
    ("template", "arguments", "says"),
    [
        (None, "dict", "has no chat template"),
        (CHATML, "json", "a string within a string"),
        (CHATML.replace("call.function | tojson", "call.function.name"), "dict", "leaves out the arguments of calls:"),
        (
            "{% for message in messages %}{{ message.content }}{% endfor %}",
            "dict",
            "leaves out the names of tools, descriptions of tools, the arguments of calls:",
        ),
        ("{{ raise_exception('no tools here') }}", "dict", "refuses the turns .no tools here."),
        ("{{ messages[1].tool_calls[0].function.arguments.items() | list }}", "json", "refuses the turns"),
    ],
)
def test_a_template_that_loses_something_is_refused(own: Any, template: str | None, arguments: Any, says: str) -> None:
    own.chat_template = CHATML
    check_template(own, "dict")
    own.chat_template = template
    with pytest.raises(UsageError, match=says):
        check_template(own, arguments)


def test_special_tokens_are_found(own: Any) -> None:
    assert special_tokens_in(own, ["a", "b<end>"]) == ["<end>"]
    assert special_tokens_in(own, ["a", "<en d>"]) == []
