"""Tools that are Python functions: a text in, or typed arguments; a text out.

    from toolformer_core import tool

    @tool(keywords=["mile", "miles"], tau_f=0.5)
    def miles(text: str) -> str:
        "Converts miles to kilometres."
        return f"{float(text) * 1.609344:.1f} km"

How an input becomes the function's arguments, and which parameter receives the context: see `arguments.signature`. An
input that does not fit is `invalid_input`. A function may return None where it has no answer. What it raises becomes a
failure:

    | raised                                        | failure         | retried     |
    |-----------------------------------------------|-----------------|-------------|
    | ValueError, ArithmeticError, LookupError      | `invalid_input` | no          |
    | TimeoutError, ConnectionError                 | `unreachable`   | yes         |
    | anything else                                 | `crashed`       | no          |

The fingerprint covers the whole source file and the declared `version`; what the file imports it does not see, so raise
`version` when that changes.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, TypedDict, Unpack, overload

from toolformer_core.config import canonical_json
from toolformer_core.errors import PromptError, ToolError, UnknownNameError, UsageError
from toolformer_core.records import ToolFailure, ToolResponse, ToolResult, digest_of
from toolformer_core.tools import library
from toolformer_core.tools.arguments.form import BadInput
from toolformer_core.tools.arguments.signature import FunctionSignature
from toolformer_core.tools.base import Tool, ToolLimits
from toolformer_core.tools.custom.reference import ToolReference, camel_case, key_of
from toolformer_core.tools.declaration import ToolDeclaration
from toolformer_core.tools.library import DISTRACTOR_PREFIX, LIBRARY, library_tool
from toolformer_core.tools.responses import without_exit

ENTRY_POINTS = "toolformer.tools"  # the group in which packages offer tools
_VERSION = "1"
_BAD_INPUT = (ValueError, ArithmeticError, LookupError)
_UNREACHABLE = (TimeoutError, ConnectionError)
_TOOL_ATTRIBUTES = ("key", "name", "description", "fingerprint", "load", "run")


class PythonTool:
    """A function with what it declares. It is still called as the function that it was.

    Args:
        function: takes the input, see `arguments.signature`; returns a text, or None for no answer.
        name: in calls; None: the function's name in CamelCase.
        description: one sentence; None: the first line of the docstring.
        version: raised when answers change and the source file does not.
        declaration: prompt, filter, thresholds and examples.
        limits: how it may be called.

    Raises:
        UsageError: no input can give what the function takes.
    """

    def __init__(
        self,
        function: Callable[..., str | None],
        *,
        name: str | None = None,
        description: str | None = None,
        version: str = "",
        declaration: ToolDeclaration | None = None,
        limits: ToolLimits | None = None,
    ) -> None:
        self.function = function
        self.name = name or camel_case(function.__name__)
        self.key = key_of(self.name)
        lines = (inspect.getdoc(function) or "").splitlines()
        self.description = description or (lines[0].strip() if lines else f"Calls {function.__name__}.")
        self.version = version
        self.declaration = declaration or ToolDeclaration(origin=function.__module__)
        self.limits = limits or ToolLimits()
        self.reference: ToolReference | None = None  # from which another process makes it again
        self._signature = FunctionSignature(function)
        self.form = self._signature.form  # how an input gives arguments; None: it is taken as it is
        self.__doc__ = function.__doc__

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

    def load(self) -> None:
        """Do nothing: importing the file was all there is to prepare."""

    def run(self, input: str, context: str = "") -> ToolResult:
        """Call the function; see the module for what becomes of an exception."""
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
    """The settings of `@tool`.

    Args:
        name: in calls; default: the function's name in CamelCase.
        description: one sentence; default: the first line of the docstring.
        prompt: the annotation prompt, with one `{text}`, or the path of a file that holds it, relative to the file of
            the function; default: `<function>.txt` beside that file.
        patterns: regular expressions; see `DocumentFilter`, also for the next four.
        keywords: words of which one must occur.
        language: ISO 639-1 code.
        min_chars: characters at least.
        max_chars: characters at most.
        tau_s: smallest p(" [") of a position; default: the paper's 0.05.
        top_k: most likely positions per document; default: the paper's 5.
        draws: calls drawn per position; default: the paper's 5.
        tau_f: smallest L- - L+ of a kept call, in nats; default: the paper's 1.0.
        keep_repeats: whether equal calls within five tokens of each other are all kept.
        numeric: whether its responses are numbers, or begin with one.
        examples: pairs of a question and the call's input that answers it, for choosing a tool for a query.
        mock_response: an example of a response, one line, by which the tool can be ranked without being run.
        version: raise it when answers change and the source file does not.
        limits: how it may be called.
    """

    name: str
    description: str
    prompt: str
    patterns: Sequence[str]
    keywords: Sequence[str]
    language: str
    min_chars: int
    max_chars: int
    tau_s: float
    top_k: int
    draws: int
    tau_f: float
    keep_repeats: bool
    numeric: bool
    examples: Sequence[tuple[str, str]]
    mock_response: str
    version: str
    limits: ToolLimits


_OF_THE_TOOL = ("name", "description", "version", "limits")


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
        TypeError: there is no such option.
        UsageError: a pattern, a name, a range, an example or an annotation of the function is wrong.
        PromptError: the prompt's file cannot be read.
    """
    given: dict[str, Any] = dict(options)
    if unknown := given.keys() - FunctionOptions.__annotations__.keys():
        raise TypeError(f"tool() got an unexpected keyword argument {min(unknown)!r}")
    for listed in ("patterns", "keywords"):
        texts = given.get(listed, ())
        if isinstance(texts, str) or not all(isinstance(one, str) for one in texts):
            raise UsageError(f"{listed} must be a list of texts, e.g. {listed}=['mile']")
        given[listed] = tuple(texts)
    given["examples"] = _pairs(given.get("examples", ()))
    mock_response, version = given.get("mock_response", ""), given.get("version", "")
    if not isinstance(mock_response, str) or (mock_response and not mock_response.strip()):
        raise UsageError("mock_response must be a text that the tool could answer, e.g. mock_response='42.2 km'")
    if not isinstance(version, str):
        raise UsageError(f"version must be a text, e.g. version='{version}'")
    if not isinstance(given.get("limits"), ToolLimits | None):
        raise UsageError("limits must be made by ToolLimits, e.g. limits=ToolLimits(per_second=5)")
    prompt = given.pop("prompt", None)
    of_the_tool = {name: given.pop(name) for name in _OF_THE_TOOL if name in given}

    def decorate(decorated: Callable[..., str | None]) -> PythonTool:
        file = _source_file(decorated)
        text, source = prompt_of(prompt, (file.parent if file else Path()) / f"{decorated.__name__}.txt")
        origin = str(file or decorated.__module__)
        declaration = ToolDeclaration.of(given, origin=origin, prompt=text, prompt_source=source)
        return PythonTool(decorated, declaration=declaration, **of_the_tool)

    return decorate if function is None else decorate(function)


def _pairs(examples: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    pairs = () if isinstance(examples, str) else tuple(tuple(pair) for pair in examples if not isinstance(pair, str))
    if len(pairs) != len(examples) or not all(len(p) == 2 and all(isinstance(text, str) for text in p) for p in pairs):
        raise UsageError(
            "examples must be a list of pairs, a question and the call's input, "
            "e.g. examples=[('How many kilometres are 26.2 miles?', '26.2 miles')]"
        )
    return tuple((question, input_) for question, input_ in pairs)


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
        from toolformer_core.tools.mcp import mcp_tool

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
    elif isinstance(found, type) or not all(hasattr(found, name) for name in _TOOL_ATTRIBUTES):
        raise UsageError(f"{reference} is neither a function nor an object with {', '.join(_TOOL_ATTRIBUTES)}")
    else:
        if reference.name:
            raise UsageError(f"{reference}: an object names itself; only functions can be given another name")
        return found  # type: ignore[return-value]  # it has what a tool has
    declared = made.declaration
    if declared.prompt_source:  # read anew: the file may have changed since the module was imported
        declared = replace(declared, prompt=_read_prompt(Path(declared.prompt_source), required=False))
    shipped = reference.kind == "name" and made.function.__module__.startswith(f"{library.__name__}.")
    loaded = PythonTool(
        made.function,
        name=reference.name or made.name,
        description=made.description,
        version=made.version,
        declaration=replace(declared, origin="library" if shipped else str(replace(reference, name=""))),
        limits=made.limits,
    )
    loaded.reference = reference
    return loaded


def _module_from_file(path: Path) -> ModuleType:
    """Import a file under a name that its content decides, so that an edited file is imported anew."""
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise UsageError(f"cannot read the tool file {path}: {exc.strerror or exc}") from exc
    digest = hashlib.blake2b(str(path).encode() + b"\0" + content, digest_size=8).hexdigest()
    name = f"toolformer_tool_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise UsageError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
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


def prompt_of(given: str | None, default: Path) -> tuple[str, str]:
    """Return a tool's prompt, "" if it has none, and the file it stands or would stand in.

    Args:
        given: the prompt itself, or its file, relative to the folder of the default; None: the default.

    Raises:
        PromptError: its file cannot be read.
    """
    if given is not None and "{text}" in given:
        return given, ""
    path = default.parent / given if given else default
    return _read_prompt(path, required=given is not None), str(path)


def _read_prompt(path: Path, *, required: bool) -> str:
    """Return the text of a prompt's file; "" if there is none and none is required."""
    if "\n" in str(path):  # a prompt was given where a path may stand, too
        raise PromptError("the prompt has no {text}; put it where the document is inserted")
    if not required and not path.is_file():
        return ""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as exc:
        raise PromptError(f"cannot read the prompt {path}: {exc}") from exc
