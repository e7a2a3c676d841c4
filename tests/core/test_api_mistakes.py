"""What a user of `toolformer_core` may get wrong, and what they are told."""

import re
from typing import Any

import pytest

import toolformer_core as tf
from tests.core.decode.writers import speaks
from tests.fakes import FakeTool
from tests.support.scripted_lm import ScriptedLM
from tests.tiny import tiny_lm, tokenizer
from toolformer_core.errors import ContextError, PromptError, UnknownNameError, UsageError

TEXT = "18 + 12 x 3 = 54"


class Fake(FakeTool):
    key, name = "fake", "Fake"


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"tools": ["calculater"]}, UnknownNameError, "unknown tool 'calculater'. Did you mean 'calculator'?"),
        ({"tools": []}, UsageError, "no tool was named; give at least one of: calculator, calendar"),
        ({"tools": [Fake]}, UsageError, "tools[0] is the class Fake, not a tool; give a key or an object with key"),
        ({"tools": ["qa", 3]}, UsageError, "tools[1] is of type int, not a tool"),
        ({"tools": ["calculator", "calculator", Fake({}), Fake({})]}, UsageError, "two tools have the key 'fake'"),
        ({"tools": [Fake({})], "prompts": {}}, PromptError, "no prompt is shipped for the tool 'fake'; give one, with"),
        ({"prompts": {"calculator": "no place"}}, PromptError, "the prompt of calculator has no {text}"),
        ({"prompts": {"calculatr": "{text}"}}, UnknownNameError, "unknown tool in prompts 'calculatr'. Did you mean"),
        ({"tau_f": {"qa": 1.0}}, UnknownNameError, "unknown tool in tau_f 'qa'. Valid: calculator."),
        ({"texts": TEXT}, UsageError, "texts is one text; give a list of texts"),
        ({"texts": ["a", " \n"]}, UsageError, "texts[1] is empty; leave it out"),
        ({"texts": [None]}, UsageError, "texts[0] is of type NoneType, not str"),
        ({"texts": ["a" * 200_001]}, UsageError, "texts[0] has 200,001 characters, and the limit is 200,000; split it"),
        ({"texts": ["a\ud800"]}, UsageError, "texts[0] is not UTF-8 text (lone surrogate U+D800 at character 2)"),
        ({"urls": []}, UsageError, "1 texts, but 0 urls; give one for each text, None where there is none"),
        ({"urls": ["\ud800"]}, UsageError, "urls[0] is not UTF-8 text"),
        ({"model": "embedded"}, UsageError, "model is a name; load it once, and give what is loaded: load_model('emb"),
        ({"samples": 0}, UsageError, "samples must be positive, got 0"),
        ({"draw_form": "fixed"}, UsageError, "draw_form must be one of free, forced: 'fixed'"),
        ({"tool_timeout_s": 0}, UsageError, "timeout_s must be positive, got 0"),
        ({"tool_workers": 0}, UsageError, "tool_workers must be at least 1, got 0"),
    ],
)
def test_a_mistake_is_told_before_the_model_is_asked(changes: dict[str, Any], error: type, message: str) -> None:
    given = {"texts": [TEXT], "model": ScriptedLM(), "tools": ["calculator"], **changes}
    with pytest.raises(error, match=re.escape(message)):
        tf.annotate_texts(**given)


def test_two_tools_of_one_name() -> None:
    other = Fake({})
    other.key = "other"
    with pytest.raises(UsageError, match="two tools have the name 'Fake' in calls"):
        tf.annotate_texts([TEXT], ScriptedLM(), [Fake({}), other])
    other.name = "हिन्दी"  # an identifier of Python, but no call of this name would be read
    with pytest.raises(UsageError, match=re.escape("tools[0] has the name 'हिन्दी'; in a call a name is one word")):
        tf.annotate_texts([TEXT], ScriptedLM(), [other])


def test_a_context_without_room_for_a_text() -> None:
    # the shipped prompt alone takes more than 64 tokens
    with pytest.raises(ContextError, match="a model with a longer context"):
        tf.annotate_texts([TEXT], tiny_lm(context=64), ["calculator"])


def test_mistakes_of_generating() -> None:
    lm = speaks(tokenizer(), "T(7) ->", context=64)
    with pytest.raises(UsageError, match=r"the prompt has \d+ tokens, but the context of model 'llama' is only 64"):
        tf.generate("word " * 100, lm)
    with pytest.raises(UnknownNameError, match="Did you mean 'calculator'"):
        tf.generate("So!", lm, ["calculator!"])
    with pytest.raises(UsageError, match="load_model"):
        tf.generate("So!", "embedded", ["calculator"])
    with pytest.raises(UsageError, match="3 prompts, but settings for 2"):
        tf.generate(["a", "b", "c"], lm, settings=[tf.GenerationSettings()] * 2)
