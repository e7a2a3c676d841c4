"""Templates, which escape every text that they are given, and the few words and forms that they share."""

from functools import lru_cache
from typing import Any
from zlib import crc32

from jinja2 import Environment, PackageLoader, StrictUndefined

from toolformer_core.config import TOOL_NAMES
from viewer.query import document_link, link
from warehouse.queries import CallInContext

_COLOURS = 8  # of tools, in the style sheet
MENU = {  # path -> title
    "/": "Overview",
    "/documents": "Documents",
    "/calls": "Calls",
    "/thresholds": "Thresholds",
    "/compare": "Compare",
    "/judge": "Judge",
    "/models": "Models",
    "/sql": "SQL",
}
_SHOWN_CHARS = 160


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(pages=MENU, **values)


def shown(text: str, characters: int = _SHOWN_CHARS) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def tool_class(tool: str) -> str:
    """Return the class with a tool's colour: one for each of the paper's tools, and the rest for others, by name."""
    own = list(TOOL_NAMES)
    return f"tool-{own.index(tool) if tool in own else len(own) + crc32(tool.encode()) % (_COLOURS - len(own))}"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("viewer"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # the templates of another version, installed meanwhile, would meet this code
    )
    environment.filters |= {"shown": shown, "nats": "{:+.3f}".format, "number": "{:,}".format, "short": "{:g}".format}
    links = {"link": link, "document_link": document_link, "call_link": _call_link}
    environment.globals |= {**links, "tool_class": tool_class}
    environment.globals["parts"] = environment.get_template("parts.html").module  # which has the globals so far
    return environment


def _call_link(call: CallInContext) -> str:
    return document_link(call.doc_id, {"tool": "+".join(one.tool for one in call.links), "position": call.position})
