"""Three chat templates: the Jinja files of `templates/`, and what they are to write, said a second time in Python.

The loaders render with Jinja. Here the same turns are written by hand, so that a mask is not checked against the
`{% generation %}` blocks that made it. Of an assistant's turn all is trained that the model has to write: the content,
the call, and the token that ends the turn; not the header in front of it, nor a line break after it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certify.promise import Stretch
from toolformer_core.embedded import MODEL

_FOLDER = Path(__file__).with_name("templates")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    name: str
    start: str | None  # token that starts a text
    end: str  # token that ends a turn of the assistant
    specials: tuple[str, ...]  # further special tokens
    tools: Callable[[Sequence[Mapping[str, Any]]], str]  # the list of tools, as text
    headers: Mapping[str, str]  # role -> what stands in front of its content
    footers: Mapping[str, str]  # role -> what stands after it; of the assistant: after the token that ends the turn
    call: str  # a call, with {name} and {arguments}; of a text in front of it {gap} is the separator
    gap: str
    quoted: bool  # whether a response is written as JSON

    @property
    def path(self) -> Path:
        return _FOLDER / f"{self.name}.jinja"

    def stretches(self, row: Mapping[str, Any]) -> list[Stretch]:
        """Return a row of the dialect openai as the template writes it, and which of it is trained."""
        out = [Stretch((self.start or "") + self.tools(json.loads(row["tools"])), False)]
        for message in row["messages"]:
            role, content = message["role"], message["content"]
            if role != "assistant":
                said = _json({"content": content}) if role == "tool" and self.quoted else content
                out.append(Stretch(self.headers[role] + said + self.footers[role], False))
                continue
            out.append(Stretch(self.headers[role], False))
            out.append(Stretch(content + self.written(message) + self.end, True))
            out.append(Stretch(self.footers[role], False))
        return [stretch for stretch in out if stretch.text]

    def written(self, message: Mapping[str, Any]) -> str:
        """Return an assistant's calls as the template writes them; "" if there are none."""
        text = ""
        for called in message.get("tool_calls") or []:
            given = called["function"]["arguments"]
            arguments = given if isinstance(given, str) else _json(given)
            gap = self.gap if message["content"] else ""
            text += gap + self.call.format(name=_json(called["function"]["name"]), arguments=arguments)
        return text


def _chatml_tools(tools: Sequence[Mapping[str, Any]]) -> str:
    lines = "".join(_json(tool) + "\n" for tool in tools)
    rule = 'A call is JSON with "name" and "arguments" between <tool_call> and </tool_call>.'
    return f"<|im_start|>system\nThese tools can be called:\n{lines}{rule}<|im_end|>\n"


def _llama3_tools(tools: Sequence[Mapping[str, Any]]) -> str:
    lines = "".join(_json(tool) + "\n\n" for tool in tools)
    rule = 'A call is JSON with "name" and "parameters" behind the token for calls.'
    header = "<|start_header_id|>system<|end_header_id|>\n\n"
    return f"{header}These functions can be called:\n\n{lines}{rule}<|eot_id|>"


CHATML = ChatTemplate(
    name="chatml",
    start=None,
    end="<|im_end|>",
    specials=("<|im_start|>",),
    tools=_chatml_tools,
    headers={role: f"<|im_start|>{role}\n" for role in ("user", "assistant", "tool")},
    footers={"user": "<|im_end|>\n", "assistant": "\n", "tool": "<|im_end|>\n"},
    call='<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>',
    gap="\n",
    quoted=False,
)
LLAMA3 = ChatTemplate(
    name="llama3",
    start="<|begin_of_text|>",
    end="<|eot_id|>",
    specials=("<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>", "<|eom_id|>"),
    tools=_llama3_tools,
    headers={
        "user": "<|start_header_id|>user<|end_header_id|>\n\n",
        "assistant": "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "tool": "<|start_header_id|>ipython<|end_header_id|>\n\n",
    },
    footers={"user": "<|eot_id|>", "assistant": "", "tool": "<|eot_id|>"},
    call='<|python_tag|>{{"name": {name}, "parameters": {arguments}}}',
    gap="",
    quoted=False,
)
MISTRAL = ChatTemplate(
    name="mistral",
    start="<s>",
    end="</s>",
    specials=(
        *(f"[{end}{name}]" for name in ("INST", "AVAILABLE_TOOLS", "TOOL_RESULTS") for end in ("", "/")),
        "[TOOL_CALLS]",
    ),
    tools=lambda tools: f"[AVAILABLE_TOOLS]{_json(list(tools))}[/AVAILABLE_TOOLS]",
    headers={"user": "[INST]", "assistant": "", "tool": "[TOOL_RESULTS]"},
    footers={"user": "[/INST]", "assistant": "", "tool": "[/TOOL_RESULTS]"},
    call='[TOOL_CALLS][{{"name": {name}, "arguments": {arguments}}}]',
    gap="",
    quoted=True,
)
TEMPLATES = {template.name: template for template in (CHATML, LLAMA3, MISTRAL)}


def save_tokenizer(folder: Path, template: ChatTemplate | None) -> None:
    """Write the embedded tokenizer to a folder, with a template and its special tokens if one is given."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    if template is not None:
        named = {"bos_token": template.start} if template.start else {}
        tokenizer.add_special_tokens({**named, "eos_token": template.end, "pad_token": tokenizer.eos_token})
        tokenizer.add_tokens(list(template.specials), special_tokens=True)
        tokenizer.chat_template = template.path.read_text(encoding="utf-8")
    tokenizer.save_pretrained(folder)
