"""Prompts written by chat templates: the engine equals the plain computation, and reads the whole conversation."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import PROMPT, TEXTS, tiny_lm
from tokenizers import AddedToken

from tests.support.chat_templates import AS_PLAIN, TEMPLATES, chat_tokenizer
from tests.support.fake_vllm import SERVED, fake_vllm
from tests.support.plain_lm import PlainLM
from tests.support.plainly import assert_alike, drawn, scanned
from toolformer_core.lm.base import Draw, ScoreRequest
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.tokens import tokenize
from toolformer_core.lm.vllm import VllmLM
from toolformer_core.lm.vllm_server import VllmServer
from toolformer_core.lm.windowing import windows_of
from toolformer_core.prompts.chat import prompt_in_chat
from toolformer_core.prompts.load import prompt_from_text
from toolformer_core.records import AssistantTurn, Prompt

LONG = " ".join(f"In {1900 + i} there were {i} of them." for i in range(30))
BARE = prompt_from_text("calculator", "Add calls.\n\n{text}\n\nNow with calls:")  # the document begins the user's turn


def in_chat(name: str, tokenizer: Any, prompt: Prompt = PROMPT) -> Prompt:
    tokenizer = copy.copy(tokenizer)
    tokenizer.chat_template = TEMPLATES.get(name, AS_PLAIN)
    return prompt_in_chat(prompt, tokenizer)


def a_lm(family: str = "llama", *, older: bool = False, **options: int) -> TransformersLM:
    return tiny_lm(family, coded=chat_tokenizer(older), **options)


@pytest.mark.parametrize(("name", "older"), [*((name, False) for name in TEMPLATES), ("bracketed", True)])
def test_the_engine_equals_the_plain_computation(name: str, older: bool) -> None:
    assert_alike(a_lm(older=older), [TEXTS[1], TEXTS[3]], prompt=in_chat(name, chat_tokenizer(older)))


@pytest.mark.parametrize("family", ["gpt2", "mistral"])
@pytest.mark.parametrize("prompt", [PROMPT, BARE])
def test_a_text_longer_than_the_context(family: str, prompt: Prompt) -> None:
    lm = a_lm(family, context=256)
    chat = in_chat("marked", chat_tokenizer(), prompt)
    assert len(windows_of(lm.hf_model, chat, [LONG])[0]) > 2
    assert_alike(lm, [TEXTS[1], LONG], prompt=chat)


def test_the_law_of_the_template_that_adds_nothing() -> None:
    """Contents that stand as in a plain prompt give that prompt's very numbers."""
    lm = a_lm()
    chat = in_chat("as plain", chat_tokenizer())
    assert chat.turn is not None
    assert scanned(lm, TEXTS, chat) == scanned(lm, TEXTS)
    assert drawn(lm, TEXTS, 1.0, prompt=chat) == drawn(lm, TEXTS, 1.0)


def read(lm: TransformersLM, prompt: Prompt, text: str) -> list[int]:
    ((window,),) = windows_of(lm.hf_model, prompt, [text])
    return [*lm.hf_model.head_ids(prompt), *window.ids.tolist()]


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("name", ["marked", "headed", "bracketed", "renamed", "channelled"])
@pytest.mark.parametrize("text", [TEXTS[0], TEXTS[1], TEXTS[2], TEXTS[4]])
def test_the_model_reads_the_tokens_of_the_conversation(name: str, older: bool, text: str) -> None:
    """The system's turn, the user's with the document, and an assistant's that says the document and has not ended.

    bos stands in front once: `marked` and `channelled` do not write it.
    """
    tokenizer = copy.copy(chat_tokenizer(older))
    tokenizer.chat_template = TEMPLATES[name].replace("strftime_now('%d %b %Y')", "'01 Jan 2024'")
    system, _, before = PROMPT.head.rpartition("\n\n")
    user = f"{before}{text}{PROMPT.tail}"
    turns = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    if name in ("bracketed", "renamed"):
        turns = [{"role": "user", "content": f"{system}\n\n{user}"}]
    turns.append({"role": "assistant", "content": text})
    whole = tokenizer.apply_chat_template(turns, tokenize=False, continue_final_message=True)
    ids = tokenizer(whole, add_special_tokens=False)["input_ids"]
    bos = [] if whole.startswith("<s>") else [tokenizer.bos_token_id]
    found = read(a_lm(older=older), in_chat(name, chat_tokenizer(older)), text)
    assert found == [*bos, *ids]
    assert found.count(tokenizer.bos_token_id) == 1


def test_a_tokenizer_without_bos_begins_a_chat_with_none() -> None:
    tokenizer = copy.deepcopy(chat_tokenizer())
    tokenizer.bos_token = None
    lm = tiny_lm(coded=tokenizer)
    assert lm.hf_model.bos == tokenizer.eos_token_id  # which begins a plain prompt
    first = lm.hf_model.head_ids(in_chat("marked", tokenizer))[0]
    assert first == tokenizer.convert_tokens_to_ids("<|turn|>")


@settings(max_examples=30)
@given(
    text=st.text(st.sampled_from("ab é7\n.[]日🙂"), min_size=1, max_size=30).filter(str.strip),
    name=st.sampled_from(sorted(TEMPLATES)),
    prompt=st.sampled_from([PROMPT, BARE]),
)
def test_no_character_of_a_document_is_lost_at_a_border(text: str, name: str, prompt: Prompt) -> None:
    lm, chat = a_lm(), in_chat(name, chat_tokenizer(), prompt)
    space = " " if chat.turn is not None and chat.turn.space else ""
    written = lm.hf_model.text(read(lm, chat, text))
    assert written.removeprefix("<s>") == f"{chat.head}{text}{chat.tail}{space}{text}".removeprefix("<s>")


@settings(max_examples=30)
@given(text=st.text(st.sampled_from("ab é7\n.[]日🙂"), max_size=30).map("a{}".format))
def test_positions_are_those_where_a_score_may_begin(text: str) -> None:
    """Behind a line end a document that begins with no blank has the tokens that it has alone, as it is scored."""
    lm, chat = a_lm(), in_chat("marked", chat_tokenizer())
    (tokens,) = tokenize(lm.hf_model.tokenizer, [text])
    ((window,),) = windows_of(lm.hf_model, chat, [text])
    assert window.positions.tolist() == sorted(set(tokens.cuts[tokens.starts_character].tolist()))


def test_a_mark_that_swallows_blanks_takes_none_of_the_document() -> None:
    """Some tokenizers count the blanks behind a mark to the mark: here the document's own line end."""
    tokenizer = copy.deepcopy(chat_tokenizer())
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken("<|greedy|>", rstrip=True)]})
    chat = Prompt("calculator", "Calls, please: ", "<|greedy|>\n", turn=AssistantTurn(space=False))
    lm = tiny_lm(coded=tokenizer)
    ids = read(lm, chat, "\n And on.")
    at = ids.index(tokenizer.convert_tokens_to_ids("<|greedy|>"))
    assert lm.hf_model.text(ids[at + 1 :]) == "\n And on."


def ended_by(lm: TransformersLM, chat: Prompt, step: int) -> tuple[Prompt, str]:
    """The prompt whose turn ends with the token that the first greedy draw writes at a step; the text before that."""
    (scan,) = lm.scan(chat, TEXTS[:1])
    request = next(iter(drawn(lm, TEXTS[:1], 0.0, prompt=chat)))
    ((_, ids),) = scan.draw_tokens([request], max_tokens=8, temperature=0.0)
    assert ids[step] not in ids[:step]
    end = lm.hf_model.tokenizer.convert_ids_to_tokens(ids[step])
    turn = AssistantTurn(space=False, end=end)
    return Prompt(chat.tool, chat.head, chat.tail, turn=turn), lm.hf_model.text(ids[:step])


def test_a_draw_ends_with_the_turn() -> None:
    lm = a_lm()
    chat, text = ended_by(lm, in_chat("marked", chat_tokenizer()), 3)
    for model in (lm, PlainLM(lm.hf_model)):
        assert next(iter(drawn(model, TEXTS[:1], 0.0, prompt=chat).values())) == Draw(text, False)
    assert drawn(lm, TEXTS, 1.0, prompt=chat) == drawn(PlainLM(lm.hf_model), TEXTS, 1.0, prompt=chat)


def test_a_server_draws_the_same_and_ends_with_the_turn() -> None:
    lm = a_lm("gpt2")
    for chat in (in_chat("headed", chat_tokenizer()), ended_by(lm, in_chat("marked", chat_tokenizer()), 3)[0]):
        with fake_vllm(lm=lm) as server:
            served = VllmLM(lm, VllmServer(server.url, SERVED, timeout_s=60), name="served", digest="served")
            for temperature in (0.0, 1.0):
                assert drawn(served, TEXTS[:2], temperature, prompt=chat) == drawn(
                    lm, TEXTS[:2], temperature, prompt=chat
                )
            ends = {tuple(body.get("stop_token_ids", ())) for body in server.asked if "prompt_logprobs" not in body}
            assert chat.turn is not None
            assert ends == {(lm.hf_model.tokenizer.convert_tokens_to_ids(chat.turn.end),)}


def test_scores_do_not_know_the_template() -> None:
    """L+ and L- are of plain texts behind a prefix; they were the same before a chat was scanned."""
    lm = a_lm()
    request = [ScoreRequest(" [Calculator(1 + 1) -> 2]", TEXTS[0], 7, 5)]
    (before,) = lm.log_probs(request)
    list(lm.scan(in_chat("headed", chat_tokenizer()), TEXTS))
    (after,) = lm.log_probs(request)
    assert before.tolist() == after.tolist()
