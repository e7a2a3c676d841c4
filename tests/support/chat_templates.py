"""Small chat templates with the traits of well-known ones, and a tokenizer that has their tokens."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from tests.tiny import sentencepiece, tokenizer

MARKED = (
    "{% for m in messages %}<|turn|>{{ m.role + '\n' + m.content }}<|end|>{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>{{ 'assistant\n' }}{% endif %}"
)
_ONLY_QUESTIONS = "{% if m.role == 'system' %}{{ raise_exception('System turns are not supported') }}{% endif %}"
# Contents alone, separated as in a plain prompt: a blank line behind the system's, a space in front of an answer.
AS_PLAIN = (
    "{% for m in messages %}{{ '' if loop.first else ' ' if m.role == 'assistant' else '\n\n' }}{{ m.content }}"
    "{% endfor %}"
)
TEMPLATES = {
    # as ChatML: any role between marks
    "marked": MARKED,
    # bos, headers, stripped contents, and a date in front of the system's text
    "headed": (
        "{{ bos_token }}{% for m in messages %}<|head|>{{ m.role }}<|/head|>{{ '\n\n' }}"
        "{% if m.role == 'system' %}{{ 'Today is ' + strftime_now('%d %b %Y') + '.\n\n' }}{% endif %}"
        "{{ m.content | trim }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|head|>assistant<|/head|>{{ '\n\n' }}{% endif %}"
    ),
    # bos, no system turn, no beginning of the assistant's turn but a space in front of its answer
    "bracketed": (
        "{{ bos_token }}{% for m in messages %}" + _ONLY_QUESTIONS + "{% if m.role == 'user' %}"
        "[INST] {{ m.content }} [/INST]{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}"
    ),
    # bos, no system turn, stripped contents, another name for the assistant
    "renamed": (
        "{{ bos_token }}{% for m in messages %}" + _ONLY_QUESTIONS + "<|turn|>"
        "{{ ('model' if m.role == 'assistant' else 'user') + '\n' + m.content | trim }}<|end|>{{ '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}<|turn|>{{ 'model\n' }}{% endif %}"
    ),
    # a system turn is left out in silence
    "deaf": MARKED.replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}"),
    # thoughts that can be turned off
    "switched": MARKED.replace(
        "{{ 'assistant\n' }}",
        "{{ 'assistant\n' }}{% if enable_thinking is defined and not enable_thinking %}"
        "<think>{{ '\n\n' }}</think>{{ '\n\n' }}{% endif %}",
    ),
    # thoughts that always begin, and that are dropped from answers
    "pensive": (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}"
        "{% elif m.role == 'assistant' %}<|model|>{{ m.content.split('</think>')[-1] }}{{ eos_token }}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|model|><think>{{ '\n' }}{% endif %}"
    ),
    # a turn ends where the next one begins
    "endless": (
        "{% for m in messages %}<|{{ 'model' if m.role == 'assistant' else m.role }}|>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<|model|>{% endif %}"
    ),
    # an answer stands in a channel that the beginning of the turn does not name
    "channelled": (
        "{% for m in messages %}<|turn|>{{ m.role + ('<|final|>' if m.role == 'assistant' else '\n') }}"
        "{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|turn|>assistant{% endif %}"
    ),
}
_TOKENS = ["<|turn|>", "<|end|>", "<|head|>", "<|/head|>", "[INST]", "[/INST]", "<think>", "</think>"]
_TOKENS += ["<|user|>", "<|model|>", "<|final|>"]


@cache
def chat_tokenizer(older: bool = False) -> Any:
    """The tiny tokenizer with bos, eos and the tokens of the templates; `older`: the one of the older Llama kind."""
    coded = copy.deepcopy(sentencepiece() if older else tokenizer())
    coded.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>", "additional_special_tokens": _TOKENS})
    return coded
