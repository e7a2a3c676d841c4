"""Tools that are Python functions, found by reference: a text in, or typed arguments; a text out (docs/tools.md).

The fingerprint covers the whole source file and the declared `version`; what the file imports it does not see, so raise
`version` when that changes.
"""

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, TypedDict, Unpack, overload

from toolformer_core.config import canonical_json
from toolformer_core.errors import ToolError, UnknownNameError, UsageError
from toolformer_core.records import ToolFailure, ToolResponse, ToolResult, digest_of
from toolformer_core.tools import library
from toolformer_core.tools.arguments.form import BadInput
from toolformer_core.tools.arguments.signature import FunctionSignature
from toolformer_core.tools.base import Tool, ToolLimits
from toolformer_core.tools.custom.reference import ToolReference, camel_case, key_of
from toolformer_core.tools.declaration import ToolDeclaration, read_prompt
from toolformer_core.tools.library import DISTRACTOR_PREFIX, LIBRARY, library_tool
from toolformer_core.tools.mcp import mcp_tool
from toolformer_core.tools.responses import without_exit

ENTRY_POINTS = "toolformer.tools"  # the group in which packages offer tools
_VERSION = "1"
_BAD_INPUT = (ValueError, ArithmeticError, LookupError)
_UNREACHABLE = (TimeoutError, ConnectionError)


@dataclass(eq=False)
class PythonTool:
    """A function with what it declares. It is still called as the function that it was.

    A `UsageError` if no input can give what the function takes.
    """

    function: Callable[..., str | None]  # takes the input, see `arguments.signature`; returns a text, or None
    declaration: ToolDeclaration  # prompt, filter, thresholds and examples
    name: str = ""  # in calls; "": the function's name in CamelCase
    description: str = ""  # one sentence; "": the first line of the docstring
    version: str = ""  # raised when answers change and the source file does not
    limits: ToolLimits = field(default_factory=ToolLimits)
    reference: ToolReference | None = None  # from which another process makes it again

    def __post_init__(self) -> None:
        self.name = self.name or camel_case(self.function.__name__)
        self.key = key_of(self.name)
        lines = (inspect.getdoc(self.function) or "").splitlines()
        self.description = self.description or (lines[0].strip() if lines else f"Calls {self.function.__name__}.")
        self._signature = FunctionSignature(self.function)
        self.form = self._signature.form  # how an input gives arguments; None: it is taken as it is

    def __call__(self, *args: Any, **kwargs: Any) -> str | None:
        return self.function(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.reference is None:
            raise ToolError(f"the tool {self.name} was made in this process and cannot be sent to another")
        return (load_tool, (self.reference,))

    @property
    def fingerprint(self) -> str:
        """Digest of the source file, the function's name, the schema of its arguments and the declared version."""
        schema = [canonical_json(self.form.schema)] if self.form else []  # its types may come from another file
        function = self.function
        return digest_of("python", _VERSION, _source_digest(function), function.__qualname__, self.version, *schema)

    def load(self) -> None: ...

    def run(self, input: str, context: str = "") -> ToolResult:
        """Call the function; another exception than those below is left to `run_guarded`, which says `crashed`."""
        try:
            args, kwargs = self._signature.bind(input, context)
            text: object = self.function(*args, **kwargs)
        except BadInput as exc:
            return ToolFailure("invalid_input", str(exc))
        except _UNREACHABLE as exc:
            return ToolFailure("unreachable", f"{type(exc).__name__}: {exc}", retryable=True)
        except _BAD_INPUT as exc:
            return ToolFailure("invalid_input", f"{type(exc).__name__}: {exc}")
        if text is None:
            return ToolFailure("no_result")
        if isinstance(text, str):
            return ToolResponse(text)
        return ToolFailure("crashed", f"{self.function.__name__} returned {type(text).__name__}, not a text")


class FunctionOptions(TypedDict, total=False):
    """The settings of `@tool`."""

    name: str  # in calls; default: the function's name in CamelCase
    description: str  # one sentence; default: the first line of the docstring
    prompt: str  # the annotation prompt, or its file, relative to the function's; default: `<function>.txt` beside it
    patterns: Sequence[str]  # regular expressions; see `DocumentFilter`, also for the next four
    keywords: Sequence[str]  # words of which one must occur
    language: str  # ISO 639-1 code
    min_chars: int
    max_chars: int
    tau_s: float  # smallest p(" [") of a position; default: the paper's 0.05
    top_k: int  # most likely positions per document; default: the paper's 5
    samples: int  # calls drawn per position; default: the paper's 5
    tau_f: float  # smallest L- - L+ of a kept call, in nats; default: the paper's 1.0
    keep_repeats: bool  # whether equal calls within five tokens of each other are all kept
    numeric: bool  # whether its responses are numbers, or begin with one
    examples: Sequence[tuple[str, str]]  # of a question and the call's input that answers it, for choosing a tool
    mock_response: str  # an example of a response, one line, by which the tool can be ranked without being run
    version: str  # raise it when answers change and the source file does not
    limits: ToolLimits  # how it may be called


@overload
def tool(function: Callable[..., str | None], /) -> PythonTool: ...


@overload
def tool(**options: Unpack[FunctionOptions]) -> Callable[[Callable[..., str | None]], PythonTool]: ...


def tool(
    function: Callable[..., str | None] | None = None, /, **options: Unpack[FunctionOptions]
) -> PythonTool | Callable[[Callable[..., str | None]], PythonTool]:
    """Make a function a tool; without options, `@tool` alone.

    Args:
        function: takes the input, see `arguments.signature`; returns a text, or None for no answer.
        options: see `FunctionOptions`.

    Raises:
        UsageError: an option or an annotation of the function is wrong.
        PromptError: the prompt's file cannot be read.
    """
    from toolformer_core.tools.custom.options import ToolOptions, validated

    given = validated(ToolOptions, options)

    def decorate(decorated: Callable[..., str | None]) -> PythonTool:
        file = _source_file(decorated)
        beside = (file.parent if file else Path()) / f"{decorated.__name__}.txt"
        declaration = given.declaration(str(file or decorated.__module__), beside)
        limits = given.limits or ToolLimits()
        return PythonTool(decorated, declaration, given.name, given.description, given.version, limits)

    return decorate if function is None else decorate(function)


def load_tool(reference: ToolReference) -> Tool:
    """Return the tool that a reference names: import its file, read its description, or connect to its server.

    An entry point comes before a tool of the library of the same name: somebody installed it on purpose.

    Raises:
        UsageError: there is no such tool, or it cannot be loaded.
        ToolError: its server does not answer.
    """
    if reference.kind == "yaml":
        from toolformer_core.tools.custom.tool_file import load_tool_file

        return load_tool_file(Path(reference.target), reference.name)
    if reference.kind == "mcp":
        return mcp_tool(reference.target, name=reference.name)
    if reference.kind == "name":
        return _as_tool(_entry_point(reference.target), reference)
    if reference.kind == "file":
        module = _module_from_file(Path(reference.target))
    else:
        with _third_party(f"the module {reference.target} cannot be imported"):
            module = importlib.import_module(reference.target)
    if not hasattr(module, reference.attribute):
        offered = [key for key, value in vars(module).items() if isinstance(value, PythonTool)]
        raise UnknownNameError(f"tool in {reference.target}", reference.attribute, offered)
    return _as_tool(getattr(module, reference.attribute), reference)


def entry_point_names() -> list[str]:
    """Return the names of the tools that installed packages offer; none of them is imported."""
    return sorted({point.name for point in metadata.entry_points(group=ENTRY_POINTS)})


def _as_tool(found: object, reference: ToolReference) -> Tool:
    if isinstance(found, PythonTool):
        made = found
    elif inspect.isfunction(found):
        made = tool(found)
    elif isinstance(found, type) or not isinstance(found, Tool):
        raise UsageError(
            f"{reference} is no function, and has not all of key, name, description, fingerprint, load, run"
        )
    elif reference.name:
        raise UsageError(f"{reference}: an object names itself; only functions can be given another name")
    else:
        return found
    declared = made.declaration
    if declared.prompt_source:  # read anew: the file may have changed since the module was imported
        declared = replace(declared, prompt=read_prompt(Path(declared.prompt_source), required=False))
    shipped = reference.kind == "name" and made.function.__module__.startswith(f"{library.__name__}.")
    declared = replace(declared, origin="library" if shipped else str(replace(reference, name="")))
    return replace(made, name=reference.name or made.name, declaration=declared, reference=reference)


def _module_from_file(path: Path) -> ModuleType:
    """Import a file under a name that its content decides, so that an edited file is imported anew."""
    with _third_party(f"cannot read the tool file {path}"):
        content = path.read_bytes()
    digest = hashlib.blake2b(str(path).encode() + b"\0" + content, digest_size=8).hexdigest()
    name = f"toolformer_tool_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = str(path)
    try:
        with _third_party(f"{path} cannot be imported"):
            exec(compile(content, path, "exec"), module.__dict__)  # Python's cache goes by the second and the size
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _third_party(problem: str) -> Iterator[None]:
    try:
        with without_exit():
            yield
    except UsageError:
        raise
    except (Exception, SystemExit) as exc:
        raise UsageError(f"{problem}: {type(exc).__name__}: {exc}") from exc


def _entry_point(name: str) -> object:
    if name.startswith(DISTRACTOR_PREFIX):  # nobody else's name; to look through what is installed takes 10 ms
        return library_tool(name)
    points = [point for point in metadata.entry_points(group=ENTRY_POINTS) if point.name == name]
    if not points:
        if name not in LIBRARY:
            raise UnknownNameError("tool", name, [*entry_point_names(), *LIBRARY])
        return library_tool(name)
    if len({point.value for point in points}) > 1:
        raise UsageError(f"several packages offer a tool {name}: " + ", ".join(point.value for point in points))
    with _third_party(f"the entry point {name} = {points[0].value} cannot be loaded"):
        return points[0].load()


def _source_file(function: Callable[..., Any]) -> Path | None:
    try:
        file = inspect.getsourcefile(inspect.unwrap(function))  # not that of a decorator, e.g. of functools.cache
    except TypeError:
        return None
    return Path(file) if file and Path(file).is_file() else None


def _source_digest(function: Callable[..., Any]) -> str:
    file = _source_file(function)
    if file is not None:
        return digest_of(file.read_bytes())
    code = getattr(function, "__code__", None)  # defined at a prompt or in a notebook
    return digest_of(code.co_code, repr(code.co_consts), repr(code.co_names)) if code is not None else ""
