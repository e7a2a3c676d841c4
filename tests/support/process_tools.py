"""Tools that run in processes of their own; they lie in a module, so that a process can import them."""

import itertools
import os
import signal
from dataclasses import dataclass, field

from toolformer_core.errors import UsageError
from toolformer_core.records import ToolResponse, ToolResult
from toolformer_core.tools.base import ToolLimits


@dataclass(slots=True)
class Digits:
    """A tool of pure Python. It knows what processes it was pickled and loaded in.

    Its inputs: `pid`, `loaded`, `spin` (compute for ever), `die` (end the process), `error`, else it echoes.
    """

    at_once: int = 1
    broken: bool = False
    key: str = "digits"
    name: str = "Digits"
    description: str = "Computes."
    fingerprint: str = "digits"
    loaded: int = 0
    unpicklable: object = None
    limits: ToolLimits = field(init=False)

    def __post_init__(self) -> None:
        self.limits = ToolLimits(at_once=self.at_once, pool="processes", tries=1)

    def load(self) -> None:
        if self.broken:
            raise UsageError("the digits are gone")
        self.loaded += 1

    def run(self, input: str, context: str = "") -> ToolResult:
        match input:
            case "pid":
                return ToolResponse(str(os.getpid()))
            case "loaded":
                return ToolResponse(str(self.loaded))
            case "spin":
                for _ in itertools.count():
                    pass
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "error":
                raise UsageError("it cannot be")
            case "print":
                print("not for standard output")  # noqa: T201
        return ToolResponse(input + context)
