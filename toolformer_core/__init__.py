"""Toolformer as a plain library: annotate a corpus with tool calls, keep the ones that help.

    import toolformer_core as tf

    model = tf.load_model("embedded")
    for annotation in tf.annotate_texts(texts, model, ["calculator"]):
        print(annotation.annotated)

It is the method and nothing else: it does not read the environment, and importing it does nothing. The names in
`__all__` are those of `api`, which is imported when the first of them is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolformer_core.api.annotation import Annotation, CandidateCall, ToolOutcome, UnansweredCall
    from toolformer_core.api.functions import annotate_texts, generate
    from toolformer_core.api.grounding import GroundedAnswer, GroundedQuery, RankedTool, answer, ground, ground_all
    from toolformer_core.decode.records import Generation, GenerationSettings
    from toolformer_core.errors import ToolformerError
    from toolformer_core.lm.load import load_model
    from toolformer_core.records import ToolFailure, ToolResponse
    from toolformer_core.tools.base import Tool, ToolLimits
    from toolformer_core.tools.build import ToolSettings, build_tools
    from toolformer_core.tools.custom.python_tool import tool

__version__ = "0.1.0"

__all__ = [
    "Annotation",
    "CandidateCall",
    "Generation",
    "GenerationSettings",
    "GroundedAnswer",
    "GroundedQuery",
    "RankedTool",
    "Tool",
    "ToolFailure",
    "ToolLimits",
    "ToolOutcome",
    "ToolResponse",
    "ToolSettings",
    "ToolformerError",
    "UnansweredCall",
    "annotate_texts",
    "answer",
    "build_tools",
    "generate",
    "ground",
    "ground_all",
    "load_model",
    "tool",
]

if not TYPE_CHECKING:  # a checker would take any name for one of the module's

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from toolformer_core import api

        return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
