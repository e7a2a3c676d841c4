"""Annotation prompts as templates write them: what becomes of each turn, and which templates are refused and why."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from tiny import PROMPT

from tests.support.chat_templates import AS_PLAIN, MARKED, TEMPLATES, chat_tokenizer
from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import PromptError
from toolformer_core.prompts.chat import prompt_in_chat
from toolformer_core.prompts.load import load_prompt, prompt_from_text
from toolformer_core.records import AssistantTurn, Prompt

SYSTEM = "Add calls like [Calculator(1 + 2)].\n\nInput: It is 3 = 3.\nOutput: It is [Calculator(1 + 2)] 3."
WHOLE = f"{SYSTEM}\n\nInput: "  # the head of the plain prompt
END = "<|end|>"


def written(template: str, prompt: Prompt = PROMPT) -> Prompt:
    tokenizer = copy.copy(chat_tokenizer())
    tokenizer.chat_template = template
    return prompt_in_chat(prompt, tokenizer)


@pytest.mark.parametrize(
    ("name", "head", "tail", "turn"),
    [
        (
            "marked",
            f"<|turn|>system\n{SYSTEM}<|end|>\n<|turn|>user\nInput: ",
            "\nOutput:<|end|>\n<|turn|>assistant\n",
            AssistantTurn(space=False, end=END),
        ),
        (
            "headed",
            f"<s><|head|>system<|/head|>\n\nToday is 01 Jan 2024.\n\n{SYSTEM}<|end|><|head|>user<|/head|>\n\nInput: ",
            "\nOutput:<|end|><|head|>assistant<|/head|>\n\n",
            AssistantTurn(space=False, end=END),
        ),
        ("bracketed", f"<s>[INST] {WHOLE}", "\nOutput: [/INST]", AssistantTurn(space=True, end="</s>")),
        (
            "renamed",
            f"<s><|turn|>user\n{WHOLE}",
            "\nOutput:<|end|>\n<|turn|>model\n",
            AssistantTurn(space=False, end=END),
        ),
        (
            "deaf",
            f"<|turn|>user\n{WHOLE}",
            "\nOutput:<|end|>\n<|turn|>assistant\n",
            AssistantTurn(space=False, end=END),
        ),
        (
            "switched",
            f"<|turn|>system\n{SYSTEM}<|end|>\n<|turn|>user\nInput: ",
            "\nOutput:<|end|>\n<|turn|>assistant\n<think>\n\n</think>\n\n",
            AssistantTurn(space=False, end=END),
        ),
        (
            "pensive",
            f"<s>{SYSTEM}<|user|>Input: ",
            "\nOutput:<|model|><think>\n\n</think>\n\n",
            AssistantTurn(space=False, end="</s>"),
        ),
        (
            "endless",
            f"<|system|>{SYSTEM}<|user|>Input: ",
            "\nOutput:<|model|>",
            AssistantTurn(space=False, end="<|user|>"),
        ),
        (
            "channelled",
            f"<|turn|>system\n{SYSTEM}<|end|><|turn|>user\nInput: ",
            "\nOutput:<|end|><|turn|>assistant<|final|>",
            AssistantTurn(space=False, end=END),
        ),
    ],
)
def test_what_a_template_makes_of_a_prompt(name: str, head: str, tail: str, turn: AssistantTurn) -> None:
    found = written(TEMPLATES[name])
    assert (found.head, found.tail, found.turn) == (head, tail, turn)
    assert found.tool == PROMPT.tool


@pytest.mark.parametrize("tool", TOOL_NAMES)
@pytest.mark.parametrize("name", TEMPLATES)
def test_every_word_of_a_shipped_prompt_is_kept_once(name: str, tool: str) -> None:
    plain = load_prompt(tool)
    found = written(TEMPLATES[name], plain)
    system, _, before = plain.head.rpartition("\n\n")
    assert found.head.count(system) == 1
    assert found.head.endswith(before)
    assert found.tail.startswith(plain.tail)


def test_none_leaves_a_prompt_as_it_is() -> None:
    assert prompt_in_chat(PROMPT, object(), "none") is PROMPT


def test_digests_of_a_chats_prompts_hold_its_turn() -> None:
    turns = (None, AssistantTurn(space=False), AssistantTurn(space=True), AssistantTurn(space=False, end=END))
    assert len({Prompt("qa", "head ", "tail", turn=turn).digest for turn in turns}) == 4
    assert len({written(template).digest for template in TEMPLATES.values()}) == len(TEMPLATES)


def test_a_file_is_read_in_place_of_the_tokenizers_template(tmp_path: Path) -> None:
    file = tmp_path / "turns.jinja"
    file.write_text(MARKED, encoding="utf-8")
    assert prompt_in_chat(PROMPT, chat_tokenizer(), str(file)) == written(MARKED)


def test_a_template_that_separates_the_contents_as_a_plain_prompt_does_gives_that_prompt() -> None:
    found = written(AS_PLAIN)
    assert (found.head, found.tail) == (PROMPT.head, PROMPT.tail)
    assert found.turn == AssistantTurn(space=True)


@pytest.mark.parametrize("name", ["marked", "renamed"])  # which keeps blanks, and which strips them
def test_a_prompt_without_a_blank_line_is_the_users_alone(name: str) -> None:
    found = written(TEMPLATES[name], prompt_from_text("miles", " Call [Miles(1)]: {text}"))
    assert found.head.endswith("user\n" + (" " if name == "marked" else "") + "Call [Miles(1)]: ")
    assert "system" not in found.head
    assert found.tail.startswith("<|end|>")


def test_a_document_may_stand_at_the_end_of_a_turn_that_is_stripped() -> None:
    found = written(TEMPLATES["renamed"], prompt_from_text("miles", "Call [Miles(1)].\n\n{text}\n\n"))
    assert found.head == "<s><|turn|>user\nCall [Miles(1)].\n\n"
    assert found.tail == "<|end|>\n<|turn|>model\n"


@pytest.mark.parametrize(
    ("beginning", "tail"),
    [
        ("<|turn|>assistant\n<think>", "<|turn|>assistant\n<think>\n\n</think>\n\n"),
        ("<|turn|>assistant\n<think>\n", "<|turn|>assistant\n<think>\n\n</think>\n\n"),
        ("<|turn|>assistant [THINK]", "<|turn|>assistant [THINK]\n\n[/THINK]\n\n"),
        ("<|turn|>assistant\n</think>", "<|turn|>assistant\n</think>"),
        ("<|turn|>assistant\n<answer>", "<|turn|>assistant\n<answer>"),
        ("<|turn|>assistant\n<|end_of_thought|>", "<|turn|>assistant\n<|end_of_thought|>"),
    ],
)
def test_an_open_thought_is_closed(beginning: str, tail: str) -> None:
    template = MARKED.replace("<|turn|>{{ 'assistant\n' }}", "{{ '" + beginning.replace("\n", "\\n") + "' }}")
    assert written(template).tail == f"\nOutput:<|end|>\n{tail}"


def test_a_prompt_may_end_with_a_word_of_thoughts_itself() -> None:
    assert written(AS_PLAIN, prompt_from_text("qa", "Ask [QA(why?)].\n\n{text}\nReasons:")).tail == "\nReasons:"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (None, "tokenizer has no chat template: leave --chat-template out"),
        ("{{ raise_exception('Nothing today') }}", "the model's chat template refuses the turns .Nothing today.$"),
        ("{% for m in messages %}", "refuses the turns"),
        ("{{ messages[7].content }}", "refuses the turns"),
        ("{{ messages[0].role }}", "changes the text of a turn, leaves it out or repeats it"),
        ("{% for m in messages %}{{ m.content | lower }}{% endfor %}", "changes the text of a turn"),
        ("{% for m in messages %}{{ m.content | e }}{% endfor %}", "changes the text of a turn"),
        ("{% for m in messages %}{{ m.content * 2 }}{% endfor %}", "changes the text of a turn"),
        (
            "{% for m in messages %}{{ m.content | length }}: {{ m.content }}{% endfor %}",
            "what it writes around a text depends on that text",
        ),
        (
            MARKED.replace("'assistant\n'", "'assistant\n<|thought|>'"),
            "an open thought, '<.thought.>', and how it ends",
        ),
        ({"rag": MARKED, "tool_use": MARKED}, "several chat templates and no default"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused_with_the_reason(template: Any, says: str) -> None:
    with pytest.raises(PromptError, match=says) as caught:
        written(template)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.jinja").write_bytes(b"\xff\xfe")
    for name, reason in (("none.jinja", "No such file or directory"), ("latin.jinja", "it is not UTF-8")):
        with pytest.raises(
            PromptError, match=rf"cannot read the chat template .*{name} .{reason}.; give none, auto or"
        ):
            prompt_in_chat(PROMPT, chat_tokenizer(), str(tmp_path / name))


def test_a_template_that_takes_no_answers_has_no_token_that_ends_them() -> None:
    asks_only = "{% for m in messages %}{% if m.role == 'assistant' %}{{ raise_exception('Ask') }}{% endif %}"
    found = written(asks_only + "{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|model|>{% endif %}")
    assert (found.tail, found.turn) == ("\nOutput:<|end|><|model|>", AssistantTurn(space=False))
