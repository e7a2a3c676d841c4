"""Answers items with a model and its tools, in batches. A prompt that does not fit into the context counts as wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolformer_core.config import TOOL_NAMES
from toolformer_core.decode.records import Generation, GenerationSettings
from toolformer_core.evaluate.items import Item, Rule, Task
from toolformer_core.evaluate.scoring import is_right

if TYPE_CHECKING:
    from toolformer_core.decode.toolformer import Toolformer
    from toolformer_core.lm.hf.engine import TransformersLM
    from toolformer_core.lm.hf.model import HFModel

TOO_LONG = "prompt_too_long"
# The paper names no length. These hold words of several tokens, and an equation before a number; text that a rule
# ignores cannot change its result, and tokens of calls are counted separately.
_NEW_TOKENS = {Rule.FIRST_5_WORDS: 32, Rule.FIRST_10_WORDS: 56, Rule.FIRST_20_WORDS: 96, Rule.FIRST_NUMBER: 64}
NOT_REQUESTED = ("bad_syntax", "not_enabled")  # failures of calls that reach no tool
_PAPER_KEYS = {name: key for key, name in TOOL_NAMES.items()}


@dataclass(frozen=True, slots=True)
class PredictedCall:
    """One of several calls of an item. Calls at one position are a chain."""

    tool: str  # key, or the name the model wrote
    position: int  # in the text without calls (`Prediction.clean`), in characters
    input: str
    response: str
    failure: str | None  # see `Prediction`
    requested: bool  # whether an offered tool was called


@dataclass(frozen=True, slots=True)
class Prediction:
    item_id: str
    group: str
    prompt: str
    answers: tuple[str, ...]
    continuation: str  # with calls
    clean: str  # without calls, which is what is scored
    correct: bool
    called: bool  # whether an offered tool was called
    tool: str | None  # of the first such call, else of the first call: its key, or the name the model wrote
    input: str | None
    response: str | None
    failure: str | None  # why the response is empty; see `decode.records.ToolCall`
    new_tokens: int  # of text
    call_tokens: int
    problem: str = ""  # why the item was not answered
    calls: tuple[PredictedCall, ...] | None = None  # all of them, in order; None where an item has one call at most


def new_tokens_for(task: Task) -> int:
    return _NEW_TOKENS[task.rule]


def parameters_of(lm: TransformersLM) -> int:
    return sum(p.numel() for p in lm.hf_model.model.parameters())


def answer(
    toolformer: Toolformer,
    task: Task,
    items: Sequence[Item],
    *,
    top_k: int,
    tools: Sequence[str],
    max_new_tokens: int | None = None,
    max_calls: int = 1,
    trigger: Mapping[str, float] | None = None,
) -> list[Prediction]:
    """Let a model answer items of a task that has answers greedily, and score its text without the calls.

    See `GenerationSettings`; `tools` are keys, and `max_new_tokens` is by default what the task's rule needs. A
    UsageError if a setting is out of range or a tool was not given to the model.
    """
    settings = GenerationSettings(
        max_new_tokens=new_tokens_for(task) if max_new_tokens is None else max_new_tokens,
        top_k=top_k,
        max_calls=max_calls if top_k else 0,
        tools=tuple(tools),
        trigger=trigger or {},
    )
    fitting = [i for i, item in enumerate(items) if _fits(toolformer.lm.hf_model, item.prompt)]
    generations = toolformer.generate(
        [items[i].prompt for i in fitting], [replace(settings, context=items[i].date or "") for i in fitting]
    )
    by_index = dict(zip(fitting, generations, strict=True))
    keys = {**_PAPER_KEYS, **toolformer.keys}
    several = max_calls > 1 and top_k > 0
    return [_prediction(task, item, by_index.get(i), keys, several) for i, item in enumerate(items)]


def _fits(hf_model: HFModel, prompt: str) -> bool:
    """Return whether the prompt leaves room for a token; an empty prompt needs a beginning-of-text token."""
    n = len(hf_model.encode(prompt)) + (hf_model.bos is not None)
    return 0 < n < hf_model.context_length


def _prediction(
    task: Task, item: Item, generation: Generation | None, keys: Mapping[str, str], several: bool
) -> Prediction:
    problem = TOO_LONG if generation is None else ""
    generation = generation or Generation("", "", (), "", 0, 0, 0, 0, ())
    calls = list(_predicted_calls(generation, keys))
    first = next((call for call in calls if call.requested), calls[0] if calls else None)
    return Prediction(
        item_id=item.item_id,
        group=item.group,
        prompt=item.prompt,
        answers=item.answers,
        continuation=generation.text,
        clean=generation.clean,
        correct=is_right(task, item, generation.clean),
        called=first is not None and first.requested,
        tool=first.tool if first else None,
        input=first.input if first else None,
        response=first.response if first else None,
        failure=first.failure if first else None,
        new_tokens=generation.new_tokens,
        call_tokens=generation.call_tokens,
        problem=problem,
        calls=tuple(calls) if several else None,
    )


def _predicted_calls(generation: Generation, keys: Mapping[str, str]) -> Iterator[PredictedCall]:
    """Yield the calls in order, each at the place where it would be put into the text without calls."""
    within_calls = 0  # characters of the calls so far
    for call in generation.calls:
        tool, requested = keys.get(call.tool, call.tool), call.failure not in NOT_REQUESTED
        yield PredictedCall(tool, call.start - within_calls, call.input, call.response, call.failure, requested)
        within_calls += call.end - call.start
