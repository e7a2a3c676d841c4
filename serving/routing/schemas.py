"""What a chat request may say when the router is on, besides what `serving.schemas` allows: OpenAI's forms."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field

from serving.errors import invalid
from serving.schemas import STRICT, ChatRequest, Extension, Message

MAX_TOOLS = 128  # OpenAI's limit


class FunctionDefinition(BaseModel):
    model_config = STRICT

    name: str = Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")
    description: str | None = Field(None, max_length=4_096)
    parameters: dict[str, Any] | None = None
    strict: bool | None = None  # arguments always fit the schema
    mock_response: str | None = Field(
        None, alias="x-mock-response", description="An example of the function's results, for its pattern score"
    )


class FunctionTool(BaseModel):
    model_config = STRICT

    type: Literal["function"]
    function: FunctionDefinition


class RoutedExtension(Extension):
    """How tools are used and chosen; every field is optional."""

    threshold: float | None = Field(
        None, allow_inf_nan=False, description="Smallest score of a tool that is chosen; null: the server's threshold"
    )


class RoutedMessage(Message):
    """One turn, which may be the result of a client's tool."""

    tool_call_id: str | None = None


class RoutedChatRequest(ChatRequest):
    """`POST /v1/chat/completions` with the router on."""

    messages: list[RoutedMessage] = Field(min_length=1)  # type: ignore[assignment]
    tools: list[FunctionTool] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: str | dict[str, Any] | None = None
    toolformer: RoutedExtension = Field(default_factory=RoutedExtension)


@dataclass(frozen=True, slots=True)
class Choice:
    """A request's `tool_choice`, read: `function` is the name of the only function allowed."""

    kind: str  # auto, none, required or function
    function: str = ""


def choice_of(request: RoutedChatRequest) -> Choice:
    """Return what a request says of the choice; refuse (400) what is none of OpenAI's values."""
    match "auto" if request.tool_choice is None else request.tool_choice:
        case ("auto" | "none" | "required") as kind:
            return Choice(kind)
        case {"type": "function", "function": {"name": str(name)}}:
            return Choice("function", name)
    forms = "auto, none, required, or {'type': 'function', 'function': {'name': ...}}"
    raise invalid("tool_choice", f"tool_choice must be {forms}")
