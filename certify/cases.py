"""Which loader reads which file, and what it is to make of each row: known from the file and the templates alone."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from certify.chat_templates import TEMPLATES
from certify.promise import Promise, Stretch, segments_promise, tokens_promise

_SEPARATOR = "<|endoftext|>"  # the default of the format `text`
# What docs/using.md tells users of LLaMA-Factory to write; a test compares the two.
DATASET_INFO: dict[str, Any] = {
    "file_name": "cstar.jsonl",
    "formatting": "sharegpt",
    "columns": {"messages": "conversations", "tools": "tools"},
    "tags": {
        "role_tag": "from",
        "content_tag": "value",
        "user_tag": "human",
        "assistant_tag": "gpt",
        "observation_tag": "observation",
        "function_tag": "function_call",
        "system_tag": "system",
    },
}


# Packages whose loaders are run, in environments of their own (`requirements/<key>.txt`, `programs/with_<key>.py`) ->
# whether the command fails if one cannot be installed.
LOADERS = {"datasets": True, "trl": True, "axolotl": False, "llamafactory": False}


@dataclass(frozen=True, slots=True)
class Files:
    exports: Path
    tokenizers: Path  # a folder each: `plain`, and of each template

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.exports / name).read_text(encoding="utf-8").splitlines()]

    def ends(self) -> tuple[str, str]:
        """Return the texts of the tokens that start and end a sequence of `tokens`, as its manifest names them."""
        from transformers import AutoTokenizer

        named = json.loads((self.exports / "tokens.manifest.json").read_text(encoding="utf-8"))["tokenizer"]
        tokenizer = AutoTokenizer.from_pretrained(self.tokenizers / "plain")
        return str(tokenizer.decode([named["start"]])), str(tokenizer.decode([named["end"]]))


Expected = list[dict[str, Any]] | list[Promise]  # rows as they stand, or tokens with labels


@dataclass(frozen=True, slots=True)
class Case:
    """One file, read by one loader in one way."""

    loader: str
    by: str  # who reads it, for the table
    format: str
    file: str
    how: str  # what the loader's program is to do
    expected: Expected
    tokenizer: str = "plain"
    more: dict[str, Any] = field(default_factory=dict)  # further keys of the job

    @property
    def template(self) -> str:
        return "" if self.tokenizer == "plain" else self.tokenizer

    def job(self, files: Files) -> dict[str, Any]:
        places = {"file": str(files.exports / self.file), "tokenizer": str(files.tokenizers / self.tokenizer)}
        return {**places, "how": self.how, "mixed": False, "more": {}, **self.more}


def cases_of(files: Files) -> Iterator[Case]:
    yield from _datasets(files)
    yield from _trl(files)
    yield from _axolotl(files)
    yield from _llamafactory(files)


def _chats(files: Files, loader: str, by: str, how: str) -> Iterator[Case]:
    for name, template in product(("openai-json", "openai-dict"), TEMPLATES.values()):
        promises = [Promise(tuple(template.stretches(row))) for row in files.rows(f"{name}.jsonl")]
        mixed = {"mixed": True} if name == "openai-dict" else {}
        yield Case(loader, by, _format(name), f"{name}.jsonl", how, promises, template.name, mixed)


def _tokens(files: Files) -> list[Promise]:
    start, end = files.ends()
    return [tokens_promise(row, start, end) for row in files.rows("jsonl.jsonl")]


def _texts(files: Files, file: str, end: str) -> list[Promise]:
    """Texts that are trained as a whole, with the token after them that ends one, where they do not end so."""
    texts = [row["text"] for row in files.rows(file)]
    return [Promise((Stretch(text if text.endswith(end) else text + end, True),)) for text in texts]


def _datasets(files: Files) -> Iterator[Case]:
    texts = [{"text": row["text"]} for row in files.rows("jsonl.jsonl")]
    whole = [{"doc_id": row["doc_id"], "text": row["text"]} for row in files.rows("jsonl.jsonl")]
    by = "datasets"
    yield Case(by, by, "text", "text.txt", "text", texts, more={"separator": f"\n{_SEPARATOR}\n"})
    yield Case(by, by, "hf", "hf", "folder", whole)
    for name in ("jsonl", "tokens", "segments", "openai-json", "openai-dict", "sharegpt"):
        file, mixed = f"{name}.jsonl", {"mixed": True} if name == "openai-dict" else {}
        yield Case(by, by, _format(name), file, "json", files.rows(file), more=mixed)
    for template in TEMPLATES.values():
        file = f"rendered-{template.name}.jsonl"
        yield Case(by, by, "chat text", file, "json", files.rows(file), template.name)
    yield from _chats(files, "datasets", "datasets, transformers", "chat")


def _trl(files: Files) -> Iterator[Case]:
    by = "TRL SFTTrainer"
    yield from _chats(files, "trl", by, "chat")
    for template in TEMPLATES.values():
        file = f"rendered-{template.name}.jsonl"
        yield Case("trl", by, "chat text", file, "rows", _texts(files, file, template.end), template.name)
    end = files.ends()[1]
    yield Case("trl", by, "tokens", "tokens.jsonl", "rows", _tokens(files))
    yield Case("trl", by, "jsonl", "jsonl.jsonl", "rows", _texts(files, "jsonl.jsonl", end))
    yield Case("trl", by, "hf", "hf", "folder", _texts(files, "jsonl.jsonl", end))
    yield Case("trl", "Trainer", "tokens", "tokens.jsonl", "trainer", _tokens(files))


def _axolotl(files: Files) -> Iterator[Case]:
    by = "axolotl"
    segments = [segments_promise(row) for row in files.rows("jsonl.jsonl")]
    yield Case(by, by, "tokens", "tokens.jsonl", "", _tokens(files))
    yield Case(by, by, "segments", "segments.jsonl", "input_output", segments)
    yield Case(by, by, "jsonl", "jsonl.jsonl", "completion", _texts(files, "jsonl.jsonl", files.ends()[1]))
    yield from _chats(files, by, by, "chat_template")


def _llamafactory(files: Files) -> Iterator[Case]:
    info = {"dataset_info": {**DATASET_INFO, "file_name": str(files.exports / "sharegpt.jsonl")}}
    for tokenizer, (own, turns) in _OWN_TEMPLATES.items():
        file, by = "sharegpt.jsonl", f"LLaMA-Factory, {own}"
        promises = [turns.promise(row) for row in files.rows(file)]
        yield Case("llamafactory", by, "chat sharegpt", file, own, promises, tokenizer, info)


@dataclass(frozen=True, slots=True)
class _OwnTurns:
    """The assistant's turns as a template of LLaMA-Factory's own writes them, up to what it trains of them."""

    call: str  # with {name} and {arguments}
    text: str  # with {text}

    def promise(self, row: dict[str, Any]) -> Promise:
        """Return the promise of a row of the dialect sharegpt; what frames the turns is the template's affair."""
        stretches = []
        for turn in row["conversations"]:
            value = turn["value"]
            if turn["from"] == "function_call":
                called = json.loads(value)
                given = {key: json.dumps(called[key], ensure_ascii=False) for key in ("name", "arguments")}
                stretches.append(Stretch(self.call.format(**given), True))
            elif turn["from"] == "gpt":
                stretches.append(Stretch(self.text.format(text=value), True))
            else:
                stretches.append(Stretch(value, False))
        return Promise(tuple(stretches), whole=False)


# Our tokenizer of a template -> LLaMA-Factory's template with the same special tokens; it reads no Jinja. What ends a
# turn is trained, and of ChatML the line break after it as well.
_OWN_TEMPLATES = {
    "chatml": (
        "qwen",
        _OwnTurns(
            '<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call><|im_end|>\n', "{text}<|im_end|>\n"
        ),
    ),
    "llama3": ("llama3", _OwnTurns('{{"name": {name}, "parameters": {arguments}}}<|eot_id|>', "{text}<|eot_id|>")),
    "mistral": ("mistral", _OwnTurns('[TOOL_CALLS] [{{"name": {name}, "arguments": {arguments}}}]</s>', " {text}</s>")),
}


def _format(name: str) -> str:
    dialect, _, arguments = name.partition("-")
    if dialect == "sharegpt":
        return "chat sharegpt"
    return f"chat openai, {arguments}" if arguments else name
