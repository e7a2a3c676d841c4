"""A library of tools to choose from: each tool with its description d_i, its demonstrations pi_i and a mock response.

The small LM reads "questions" (the description, the tool's `examples` as "Question: q / Call: [Tool(input)]", and Q),
or an "annotation" prompt of the query, then the query once more. A tool without examples is shown by its annotation
prompt; one that has neither, zero-shot, by description and form of the call, where that is allowed.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from toolformer_core.annotate.tool_prompt import prompt_for
from toolformer_core.errors import PromptError, UsageError
from toolformer_core.records import Call, Prompt, digest_of
from toolformer_core.syntax import linearize
from toolformer_core.tools.base import Tool
from toolformer_core.tools.declaration import declaration_of

DemonstrationKind = Literal["questions", "annotation"]


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """What a small LM reads before it writes a call: a head that all queries share, then the query."""

    prompt: Prompt
    repeats: bool  # whether the query stands in the prompt twice, as a document does in an annotation prompt

    def after_head(self, query: str) -> str:
        """Return the text that follows the prompt's head; the call comes next."""
        return f"{query}{self.prompt.tail} {query}" if self.repeats else query + self.prompt.tail


@dataclass(frozen=True, slots=True)
class LibraryTool:
    tool: Tool
    demonstrations: Demonstrations
    mock_response: str = ""  # a stored example of its responses
    mocked: bool = False  # whether the mock response stands for the tool (App. A.3): nothing is called to rank it

    @property
    def key(self) -> str:
        return self.tool.key

    @property
    def digest(self) -> str:
        """Digest of all that its scores depend on besides models and patterns."""
        shown = (self.tool.key, self.tool.name, self.tool.description)
        if self.mocked:
            return digest_of("library tool", "mock", *shown, self.mock_response)
        repeats = str(self.demonstrations.repeats)
        return digest_of("library tool", *shown, self.tool.fingerprint, self.demonstrations.prompt.digest, repeats)


def library_of(
    tools: Iterable[Tool],
    *,
    demonstrations: DemonstrationKind = "questions",
    mock: bool | Collection[str] = (),
    undemonstrated: bool = False,
) -> tuple[LibraryTool, ...]:
    """Return tools with what GEAR needs of each, in the order in which equal scores are decided.

    Args:
        demonstrations: the kind to show; a tool that has only the other kind is shown by that one.
        mock: keys of tools that are ranked by their mock response, without being called; True: all that have one.
        undemonstrated: whether a tool may have neither examples nor an annotation prompt; it is then shown zero-shot.
    """
    out: dict[str, LibraryTool] = {}
    for tool in tools:
        response = declaration_of(tool).mock_response
        mocked = bool(response) if mock is True else mock is not False and tool.key in mock
        if mocked and not response:
            raise UsageError(f"the tool {tool.key} has no mock response; declare one: mock_response=...")
        shown = _demonstrations(tool, demonstrations, undemonstrated)
        out[tool.key] = LibraryTool(tool, shown, response, mocked)
    if not out:
        raise UsageError("the library has no tools to choose from")
    missing = [] if isinstance(mock, bool) else sorted(set(mock) - set(out))
    if missing:
        raise UsageError(f"mock responses of tools that are not in the library: {', '.join(missing)}")
    return tuple(out.values())


def zero_shot(key: str, name: str, description: str, written: str = "input") -> Demonstrations:
    """Return the demonstrations of a tool that has none: its description, and the form of its calls."""
    shape = f"A call is written{linearize(Call(name, written))}."
    return Demonstrations(Prompt(key, f"{description}\n{shape}\n\nQuestion: ", "\nCall:"), repeats=False)


def _demonstrations(tool: Tool, kind: DemonstrationKind, undemonstrated: bool) -> Demonstrations:
    examples = declaration_of(tool).examples
    shown = "".join(
        f"Question: {question}\nCall:{linearize(Call(tool.name, given))}\n\n" for question, given in examples
    )
    prompt = Prompt(tool.key, f"{tool.description}\n\n{shown}Question: ", "\nCall:")
    from_examples = Demonstrations(prompt, repeats=False)
    if shown and kind == "questions":
        return from_examples
    try:
        return Demonstrations(prompt_for(tool), repeats=True)
    except PromptError as exc:
        if shown:
            return from_examples
        if undemonstrated:
            return zero_shot(tool.key, tool.name, tool.description)
        raise UsageError(
            f"the tool {tool.key} cannot be grounded without demonstrations: declare examples=[(question, input), ...] "
            "or an annotation prompt"
        ) from exc
