"""Answers items with a model and its tools, and measures texts' likelihood with calls disabled, both in batches.

    | rule            | new tokens | why                                                          |
    |-----------------|------------|--------------------------------------------------------------|
    | first 5 words   | 32         | enough for words of several tokens and for longer answers    |
    | first 10 words  | 56         |                                                              |
    | first 20 words  | 96         |                                                              |
    | first number    | 64         | an equation may come first                                   |

The paper names no length; text that a rule ignores cannot change its result. Tokens of calls are counted separately
(see `decode.records.GenerationSettings`). An item whose prompt does not fit into the model's context is not asked; it
counts as wrong, with the reason.

Perplexity is per token, with calls disabled: p(" [") = 0 unless the text has that token. A text longer than the context
is read in windows that overlap by half, so that after the first window every token is predicted from at least half a
context. Nothing here knows arms, files or where predictions are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from toolformer_core.config import TOOL_NAMES
from toolformer_core.decode.records import Generation, GenerationSettings
from toolformer_core.errors import UsageError
from toolformer_core.evaluate.items import Item, Rule, Task
from toolformer_core.evaluate.scoring import is_right

if TYPE_CHECKING:
    from toolformer_core.decode.toolformer import Toolformer
    from toolformer_core.lm.hf.engine import TransformersLM
    from toolformer_core.lm.hf.model import HFModel

TOO_LONG = "prompt_too_long"
_NO_TOKENS = "no_tokens"
_NEW_TOKENS = {
    Rule.FIRST_5_WORDS: 32,
    Rule.FIRST_10_WORDS: 56,
    Rule.FIRST_20_WORDS: 96,
    Rule.FIRST_NUMBER: 64,
}
_NOT_ASKED = ("bad_syntax", "not_enabled")  # failures of calls for which no tool was asked
_PAPER_KEYS = {name: key for key, name in TOOL_NAMES.items()}


@dataclass(frozen=True, slots=True)
class PredictedCall:
    """One of several calls of an item. Calls at one position are a chain."""

    tool: str  # key, or the name the model wrote
    position: int  # in the text without calls (`Prediction.clean`), in characters
    input: str
    response: str
    failure: str | None  # see `Prediction`
    asked: bool  # whether an offered tool was asked


@dataclass(frozen=True, slots=True)
class Prediction:
    """The result of one item."""

    item_id: str
    group: str
    prompt: str
    answers: tuple[str, ...]
    continuation: str  # with calls
    clean: str  # without calls, which is what is scored
    correct: bool
    called: bool  # whether an offered tool was asked
    tool: str | None  # of the first such call, else of the first call: its key, or the name the model wrote
    input: str | None
    response: str | None
    failure: str | None  # why the response is empty; see `decode.records.ToolCall`
    new_tokens: int  # of text
    call_tokens: int
    problem: str = ""  # why the item was not asked
    calls: tuple[PredictedCall, ...] | None = None  # all of them, in order; None where an item has one call at most


@dataclass(frozen=True, slots=True)
class Likelihood:
    """The likelihood of one text, with calls disabled."""

    item_id: str
    source: str
    nll: float  # summed over the tokens, nats
    tokens: int  # predicted tokens; without a beginning-of-text token, the first one is not predicted
    characters: int
    problem: str = ""


def new_tokens_for(task: Task) -> int:
    """Return how many tokens of text to generate, by the task's rule.

    Raises:
        UsageError: the task is measured by perplexity.
    """
    if task.rule not in _NEW_TOKENS:
        raise UsageError(f"the task {task.name} has no answers to write; it is measured by perplexity")
    return _NEW_TOKENS[task.rule]


def parameters_of(lm: TransformersLM) -> int:
    """Return the number of weights of a model; shared weights count once."""
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
    """Let a model answer items greedily, and score its text without the calls.

    Args:
        toolformer: the model, with at least these tools.
        task: the task.
        items: items of this task.
        top_k: a call starts where " [" is among this many most likely tokens; 0: tools disabled.
        tools: keys of the tools to offer.
        max_new_tokens: tokens of text; default: by the task's rule, see the module.
        max_calls: calls per item (the paper: 1).
        trigger: the smallest p(" [") at which each tool is called, by key; None: 0.

    Returns:
        One prediction per item, in the same order.

    Raises:
        UsageError: a setting is out of range, or the task is measured by perplexity.
        UnknownNameError: a tool was not given to the model.
    """
    length = max_new_tokens if max_new_tokens is not None else new_tokens_for(task)
    hf_model = toolformer.lm.hf_model
    fitting = [i for i, item in enumerate(items) if _fits(hf_model, item.prompt)]
    settings = [
        GenerationSettings(
            max_new_tokens=length,
            top_k=top_k,
            max_calls=max_calls if top_k else 0,
            context=items[i].date or "",
            tools=tuple(tools),
            trigger=trigger or {},
        )
        for i in fitting
    ]
    generations = toolformer.generate([items[i].prompt for i in fitting], settings) if fitting else []
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
    if generation is None:
        empty = (None, None, None, None, 0, 0, TOO_LONG, () if several else None)
        return Prediction(item.item_id, item.group, item.prompt, item.answers, "", "", False, False, *empty)
    asked = [call for call in generation.calls if call.failure not in _NOT_ASKED]
    first = next(iter(asked or generation.calls), None)
    return Prediction(
        item_id=item.item_id,
        group=item.group,
        prompt=item.prompt,
        answers=item.answers,
        continuation=generation.text,
        clean=generation.clean,
        correct=is_right(task, item, generation.clean),
        called=bool(asked),
        tool=keys.get(first.tool, first.tool) if first else None,
        input=first.input if first else None,
        response=first.response if first else None,
        failure=first.failure if first else None,
        new_tokens=generation.new_tokens,
        call_tokens=generation.call_tokens,
        calls=tuple(_predicted_calls(generation, keys)) if several else None,
    )


def _predicted_calls(generation: Generation, keys: Mapping[str, str]) -> Iterator[PredictedCall]:
    """Yield the calls in the order of the text, each at the place where it would be put into the text without calls."""
    within_calls = 0  # characters of the calls so far
    for call in generation.calls:
        yield PredictedCall(
            tool=keys.get(call.tool, call.tool),
            position=call.start - within_calls,
            input=call.input,
            response=call.response,
            failure=call.failure,
            asked=call.failure not in _NOT_ASKED,
        )
        within_calls += call.end - call.start


# --- perplexity -------------------------------------------------------------------------------------------------------

_Window = tuple[int, list[int], int]  # index of the text, token ids, how many of the last ones are predicted


def likelihoods(lm: TransformersLM, items: Sequence[Item]) -> list[Likelihood]:
    """Return the negative log-likelihood of each item's prompt, with calls disabled; an empty text has a `problem`."""
    from toolformer_core.lm.hf.batches import by_budget

    hf_model = lm.hf_model
    windows = [w for i, item in enumerate(items) for w in _windows(hf_model, i, item.prompt)]
    windows.sort(key=lambda w: len(w[1]))
    nll, tokens = np.zeros(len(items)), np.zeros(len(items), dtype=np.int64)
    for batch in by_budget([len(ids) for _, ids, _ in windows], hf_model.token_budget):
        chosen = [windows[b] for b in batch]
        for (text, _, predicted), value in zip(chosen, _nll(hf_model, chosen), strict=True):
            nll[text] += value
            tokens[text] += predicted
    return [
        Likelihood(
            item.item_id,
            item.source,
            float(nll[i]),
            int(tokens[i]),
            len(item.prompt),
            "" if tokens[i] else _NO_TOKENS,
        )
        for i, item in enumerate(items)
    ]


def _windows(hf_model: HFModel, text: int, content: str) -> Iterator[_Window]:
    """Cut a text into windows so that each of its tokens is predicted in exactly one of them."""
    lead = [] if hf_model.bos is None else [hf_model.bos]
    ids = hf_model.encode(content)
    width = hf_model.context_length - len(lead)
    step = max(1, width // 2)
    done = 0 if lead else min(1, len(ids))  # without a bos token, the first token has no probability
    start = 0
    while done < len(ids):
        end = min(start + width, len(ids))
        yield text, [*lead, *ids[start:end]], end - done
        done, start = end, end - width + step  # the next window has `step` new tokens


def _nll(hf_model: HFModel, windows: Sequence[_Window]) -> list[float]:
    import torch

    from toolformer_core.lm.hf.batches import pad

    with hf_model.lock, torch.inference_mode():
        ids, mask = pad([np.asarray(w[1], dtype=np.int64) for w in windows], hf_model.device)
        position = torch.arange(ids.shape[1], device=hf_model.device).expand(len(windows), -1)
        hidden = hf_model.hidden(ids, mask, position, None)  # (B, T, D)
        rows: list[int] = []
        columns: list[int] = []
        for row, (_, window_ids, predicted) in enumerate(windows):
            rows += [row] * predicted
            columns += range(len(window_ids) - predicted, len(window_ids))
        row_, column = (torch.tensor(x, dtype=torch.long, device=hf_model.device) for x in (rows, columns))
        log_p = _log_p(hf_model, hidden[row_, column - 1], ids[row_, column])
        ends = np.cumsum([predicted for _, _, predicted in windows])
        return [-float(part.sum(dtype=np.float64)) for part in np.split(log_p, ends[:-1])]


def _log_p(hf_model: HFModel, hidden: Any, targets: Any) -> Any:
    """Return log p (N,) of targets (N,) after hidden states (N, D), with p(" [") = 0 unless it is the target.

    It works in chunks, so that no (N, V) tensor is ever held. A " [" of several tokens is not excluded.
    """
    import torch

    trigger = hf_model.trigger[0] if len(hf_model.trigger) == 1 else None
    chunk = max(1, (1 << 24) // hf_model.model.config.get_text_config().vocab_size)
    out = []
    for at in range(0, len(hidden), chunk):
        logits, target = hf_model.logits(hidden[at : at + chunk]), targets[at : at + chunk]
        if trigger is not None:
            logits[:, trigger] = logits[:, trigger].masked_fill(target != trigger, -torch.inf)
        target_logits = logits.gather(1, target[:, None]).squeeze(1)
        out.append(target_logits - torch.logsumexp(logits, dim=1))
    return torch.cat(out).cpu().numpy()
