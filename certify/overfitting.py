"""Eight rows that a tiny model learns by heart, and the calls that it must then write (`programs/overfit.py`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from certify.cases import Files
from certify.chat_templates import TEMPLATES
from certify.checks import Finding
from certify.cstar import export_all, short_cstar
from certify.promise import byte_pieces
from toolformer_core.errors import CallSyntaxError
from toolformer_core.records import Call
from toolformer_core.syntax import ARROW, CLOSE, OPEN, parse

ROWS, STEPS = 8, 500
# The loss, in nats a token, at which training stops early. With which of eight texts a row of tokens begins nobody can
# know: ln 8 over its 70 or so trained tokens, 0.03, is the least that can be reached there.
_LOSS_OF_CHATS, _LOSS_OF_TOKENS = 0.05, 0.15
_PARSERS = {"chatml": "qwen3_template"}  # TRL's own parsers of responses, where one has a template's form of calls
KINDS = (*TEMPLATES, "plain")  # chats in each template, and rows of tokens


def eight_rows(folder: Path, tokenizers: Path) -> Files:
    """Write a C* of eight short documents, and export it as chats and as tokens."""
    store = short_cstar(folder / "data", ROWS)
    export_all(store, folder / "exports", tokenizers, ("jsonl.jsonl", "tokens.jsonl", "openai-json.jsonl"))
    return Files(folder / "exports", tokenizers)


def overfit_jobs(files: Files) -> list[dict[str, Any]]:
    """Return a job for each of `KINDS`."""
    chat, tokens = files.export("openai-json.jsonl"), files.export("tokens.jsonl")
    chats = [
        {"file": str(chat), "tokenizer": str(files.tokenizer(name)), "how": "chat", "loss": _LOSS_OF_CHATS}
        | ({"parser": _PARSERS[name]} if name in _PARSERS else {})
        for name in TEMPLATES
    ]
    plain = {"file": str(tokens), "tokenizer": str(files.tokenizer("plain")), "how": "tokens", "loss": _LOSS_OF_TOKENS}
    return [{**job, "steps": STEPS} for job in (*chats, {**plain, "prompts": _token_prompts(files)})]


def _token_prompts(files: Files) -> list[list[int]]:
    """Return the tokens in front of each call, of every row of `tokens`."""
    from transformers import AutoTokenizer

    pieces = byte_pieces(AutoTokenizer.from_pretrained(files.tokenizer("plain")))
    prompts = []
    for row, tokens in zip(files.rows("jsonl.jsonl"), files.rows("tokens.jsonl"), strict=True):
        ids = tokens["input_ids"]
        for call in row["calls"]:
            room = len(row["text"][: call["start"]].encode())
            at = 1  # the token that starts a sequence is no part of the text
            while at < len(ids) and (room := room - len(pieces(ids[at : at + 1])[0])) >= 0:
                at += 1
            prompts.append(ids[:at])
    return prompts


def judge(kind: str, answer: dict[str, Any], files: Files) -> tuple[Finding, str]:
    """Return what was found, and a few words on it: how many calls were written as the rows have them.

    Args:
        kind: one of `KINDS`.
        answer: of the program to the job.
        files: of `eight_rows`.
    """
    if answer["error"]:
        return Finding(ROWS, 0, failure=answer["error"]), ""
    wanted = _token_calls(files) if kind == "plain" else _chat_calls(files)
    read = [_read_plain(text) if kind == "plain" else TEMPLATES[kind].read_call(text) for text in answer["written"]]
    right = sum(want == given for want, given in zip(wanted, read, strict=True))
    words = f"{right} of {len(wanted)} calls, {answer['steps']} steps, loss {answer['loss']:.3f}"
    if right < len(wanted):
        triples = zip(wanted, read, answer["written"], strict=True)
        wrong = next(text for want, given, text in triples if want != given)
        return Finding(ROWS, ROWS, failure=f"{words}; written: {wrong[:80]!r}"), words
    if answer["parsed"] and answer["parsed"] != [[list(call)] for call in wanted]:
        return Finding(ROWS, ROWS, failure=f"{words}, but TRL's parser finds others"), words
    return Finding(ROWS, ROWS), words


def _chat_calls(files: Files) -> list[Any]:
    """Return name and arguments of every call of the chats."""
    called = (
        call["function"]
        for row in files.rows("openai-json.jsonl")
        for message in row["messages"]
        for call in message.get("tool_calls") or []
    )
    return [(function["name"], json.loads(function["arguments"])) for function in called]


def _token_calls(files: Files) -> list[Any]:
    """Return every call of the texts, as `syntax` reads it."""
    rows = files.rows("jsonl.jsonl")
    return [_read_plain(row["text"][call["start"] :]) for row in rows for call in row["calls"]]


def _read_plain(text: str) -> Call | None:
    """Return the call at the beginning of a text, read up to its arrow; None if there is no well-formed one.

    The space behind the arrow is mostly part of the response's first token, which a model does not learn to write.
    """
    body, arrow, _ = text.removeprefix(OPEN).partition(f" {ARROW}")
    if not text.startswith(OPEN) or not arrow or CLOSE in body:
        return None
    try:
        return parse(f"{body} {ARROW} ")[0]
    except CallSyntaxError:
        return None
