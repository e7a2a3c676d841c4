"""The settings of a server, as plain values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import UsageError
from toolformer_core.grounding.encoders import Encoder
from toolformer_core.grounding.ground import GroundingSettings
from toolformer_core.grounding.library import LibraryTool
from toolformer_core.grounding.patterns import STANDARD_PATTERNS, PatternSet
from toolformer_core.grounding.records import Weights
from toolformer_core.records import unencodable


@dataclass(frozen=True, slots=True)
class RouterSettings:
    library: tuple[LibraryTool, ...]  # the server's own tools, with their demonstrations and mock responses
    weights: Weights = field(default_factory=Weights)  # without a threshold, the best tool is always called
    grounding: GroundingSettings = field(default_factory=GroundingSettings)  # prompts and lengths of the small LM
    patterns: PatternSet = STANDARD_PATTERNS  # the pattern set S with its priors
    encoder: Encoder | None = None  # embeds queries and descriptions; None: the small LM's hidden states
    load: Callable[[], Toolformer] | None = None  # returns another small LM; None: the server's own model
    model: str = ""  # its name, for people; "": the server's own model
    max_rows: int = 32  # texts that another small LM writes together


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of a server; a `UsageError` if a value is out of range."""

    name: str  # the model's name for clients
    host: str = "127.0.0.1"  # address to bind
    port: int = 8000  # port to bind; 0 picks a free one
    api_key: str | None = field(default=None, repr=False)  # the key that clients must send; None accepts all
    max_rows: int = 32
    queue: int = 256  # further sequences that may wait; requests beyond that get 429
    max_body: int = 1 << 20  # the largest body of a request, in bytes
    grace_s: float = 10.0  # seconds that open requests have to finish when the server shuts down
    body_timeout_s: float = 30.0  # seconds within which a request's body must arrive, once its headers are there
    router: RouterSettings | None = field(default=None, repr=False)  # None: the model calls tools while it writes
    # per tool (its key), the smallest p(" [") at which it is called, for requests that name none
    trigger: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.max_rows < 1 or self.queue < 0 or self.max_body < 1 or not self.grace_s >= 0:
            raise UsageError("max_rows and max_body must be at least 1, queue and grace_s at least 0")
        if not self.body_timeout_s > 0:
            raise UsageError("body_timeout_s must be positive")
        if self.api_key == "":
            raise UsageError("the API key is empty; set one, or none at all")
        for what, text in (("the model's name", self.name), ("the API key", self.api_key or "")):
            if flaw := unencodable(text):
                raise UsageError(f"{what} is not UTF-8 text ({flaw}); choose another")
