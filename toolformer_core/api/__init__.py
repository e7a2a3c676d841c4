"""The method in a few lines of Python: annotate texts, see why a call is kept or dropped, and generate with tools.

`functions` and `grounding` hold what a user calls, `inputs` checks what they give, `annotation` is what they get.
"""
# ruff: noqa: F401  # `toolformer_core` offers these names, and has their list

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
