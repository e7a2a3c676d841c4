"""Jinja and Python write the same, whether arguments are dicts or JSON."""

import json
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from certify.chat_templates import TEMPLATES, ChatTemplate
from tests.support.examples_of_c_star import BOOKS, an_example
from toolformer_core.export.conversation import LeftOut, conversation_of
from toolformer_core.export.dialects import Arguments, openai_row
from toolformer_core.export.schemas import ToolSchema
from toolformer_core.records import Example

SCHEMAS = {
    "Calculator": ToolSchema("Calculator", "Calculates."),
    "Calendar": ToolSchema("Calendar", "Says the date.", None),
    "QA": ToolSchema("QA", 'Answers "questions".'),
}
# "It is late, says" has 16 characters, "It is late, says Descartes, who" has 31.
TWO = an_example(
    "It is late, says Descartes, who wrote on method.",
    (16, "calendar", "", "Today is [Monday]."),
    (31, "qa", 'Who said "cogito"?', "René {Descartes}"),
)


def row_of(example: Example, arguments: Arguments) -> dict[str, Any]:
    conversation = conversation_of(example)
    assert not isinstance(conversation, LeftOut)
    return openai_row(conversation, SCHEMAS, arguments)


@pytest.fixture(params=TEMPLATES)
def template(request: pytest.FixtureRequest) -> ChatTemplate:
    return TEMPLATES[request.param]


@pytest.mark.parametrize("arguments", ["dict", "json"])
@pytest.mark.parametrize("example", [BOOKS, TWO])
def test_jinja_and_python_write_the_same_and_mark_the_same(
    template: ChatTemplate, example: Example, arguments: Arguments
) -> None:
    row = row_of(example, arguments)
    texts, marked = render_jinja_template(
        [row["messages"]],
        tools=json.loads(row["tools"]),
        chat_template=template.path.read_text(encoding="utf-8"),
        return_assistant_tokens_mask=True,
    )
    stretches = template.stretches(row)
    assert texts[0] == "".join(stretch.text for stretch in stretches)
    assert [texts[0][start:end] for start, end in marked[0]] == [s.text for s in stretches if s.trained]


def test_what_is_trained_of_chatml() -> None:
    trained = [stretch.text for stretch in TEMPLATES["chatml"].stretches(row_of(TWO, "json")) if stretch.trained]
    assert trained == [
        '<tool_call>\n{"name": "Calendar", "arguments": {}}\n</tool_call><|im_end|>',
        'Descartes, who\n<tool_call>\n{"name": "QA", "arguments": '
        '{"input": "Who said \\"cogito\\"?"}}\n</tool_call><|im_end|>',
        "wrote on method.<|im_end|>",
    ]


def test_the_prompt_of_a_turn_is_the_beginning_of_the_conversation(template: ChatTemplate) -> None:
    row = row_of(TWO, "json")
    tools, jinja = json.loads(row["tools"]), template.path.read_text(encoding="utf-8")
    whole = "".join(stretch.text for stretch in template.stretches(row))
    for turn in (1, 3, 5):
        (prompt,), _ = render_jinja_template(
            [row["messages"][:turn]], tools=tools, chat_template=jinja, add_generation_prompt=True
        )
        content = row["messages"][turn]["content"]
        assert whole.startswith(prompt + content)
