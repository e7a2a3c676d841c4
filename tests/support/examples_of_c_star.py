"""One document of C*, worked out by hand, a short way to make others, and a chat template that has tools."""

from toolformer_core.records import Call, Example, InsertedCall
from toolformer_core.syntax import interleave, linearize

_NAMES = {"calculator": "Calculator", "calendar": "Calendar", "qa": "QA", "convert": "Convert"}


def an_example(text: str, *calls: tuple[int, str, str, str], doc_id: str = "d") -> Example:
    """An example of a text and calls: position in the text, tool, input, response."""
    written = [(at, linearize(Call(_NAMES[tool], input_), response)) for at, tool, input_, response in calls]
    augmented, spans = interleave(text, written)
    inserted = (
        InsertedCall(tool, at, *span, input_, response, 1.0)
        for (at, tool, input_, response), span in zip(calls, spans, strict=True)
    )
    return Example(doc_id, augmented, tuple(inserted))


# "Of 587 books 58 are lent, so" has 28 characters: the call is inserted in front of the space behind them.
BOOKS = an_example("Of 587 books 58 are lent, so 529 remain.", (28, "calculator", "587 - 58", "529"))

# The form of ChatML, and of Hermes for calls: written here, as a template that has tools.
CHATML = """\
{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool.function.name }}: {{ tool.function.description }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}"""
