"""Turns chat messages into the text that a language model continues; the command line's chat uses it, too.

Without a chat template of the tokenizer they are written as a plain dialogue, "system\n\nUser: ...\nAssistant:
...\nUser: ...\nAssistant:", and generation stops where the model would write the user's next turn itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.errors import RequestError, check_text, unsupported
from serving.schemas import Message

_NAMES = {"user": "User", "assistant": "Assistant"}
_STOPS = ("\nUser:", "\nAssistant:")


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    text: str
    stops: tuple[str, ...] = ()  # strings that start the next turn
    leading_space: bool = False  # the first space of the continuation belongs to the dialogue format, not to the answer


def turn_of(message: Message, where: str) -> dict[str, str]:
    """Return a message, which errors call `where`, as role and text; refuse (400) other roles, content and no UTF-8."""
    if message.tool_calls or message.function_call or message.role in ("tool", "function"):
        raise unsupported(where, "calls and answers of the client's tools are not supported; send text turns only")
    role = "system" if message.role == "developer" else message.role
    if role not in ("system", "user", "assistant"):
        raise RequestError(
            400, f"unknown role {message.role!r}; use system, developer, user or assistant", param=f"{where}.role"
        )
    return {"role": role, "content": text_of(message, where)}


def text_of(message: Message, where: str) -> str:
    content, param = message.content, f"{where}.content"
    if content is None:
        if message.role != "assistant":
            raise RequestError(400, "content must be a text", param=param)
        return ""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for part in parts:
        if part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise unsupported(param, f"content of type {part.get('type')!r} is not supported; send text only")
    text = "".join(part["text"] for part in parts)
    check_text(text, param)
    return text


def chat_prompt(tokenizer: Any, turns: Sequence[Mapping[str, str]]) -> ChatPrompt:
    """Return the text that the model continues, by the tokenizer's `chat_template` if it has one (400: it refuses)."""
    if getattr(tokenizer, "chat_template", None):
        from jinja2 import TemplateError

        try:
            text = tokenizer.apply_chat_template(list(turns), tokenize=False, add_generation_prompt=True)
        except (TemplateError, ValueError) as exc:
            raise RequestError(400, f"the model's chat template refuses the turns: {exc}", param="messages") from exc
        return ChatPrompt(str(text))
    head = "".join(f"{t['content']}\n\n" for t in turns if t["role"] == "system" and t["content"])
    lines = [f"{_NAMES[t['role']]}: {t['content']}" for t in turns if t["role"] in _NAMES]
    return ChatPrompt(head + "\n".join([*lines, "Assistant:"]), _STOPS, leading_space=True)
