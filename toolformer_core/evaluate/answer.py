"""Items to predictions with a model and its tools, and texts to their perplexity with calls disabled, both in batches.

    | rule            | new tokens | why                                                      |
    |-----------------|------------|----------------------------------------------------------|
    | first 5 words   | 32         | room for words of several tokens, and for a longer answer |
    | first 10 words  | 56         |                                                          |
    | first 20 words  | 96         |                                                          |
    | first number    | 64         | an equation may come first                               |

The paper names no length; what a rule does not look at cannot change its verdict. Calls have an allowance of their own
(see `decode.records.Settings`). An item whose prompt does not fit into the model's context is not asked: it is wrong,
and says why.

Perplexity is that of the tokens, calls disabled: p(" [") = 0 wherever the text has no such token. A text longer than
the context is read in windows that overlap by half, so that behind the first window every token is predicted from at
least half a context. Nothing here knows arms, files or where predictions go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from toolformer_core.config import TOOL_NAMES
from toolformer_core.decode.records import Generation, Settings
from toolformer_core.errors import UsageError
from toolformer_core.evaluate.items import Item, Rule, Task
from toolformer_core.evaluate.scoring import score

if TYPE_CHECKING:
    from toolformer_core.decode.toolformer import Toolformer
    from toolformer_core.lm.hf import TransformersLM
    from toolformer_core.lm.network import Network

__all__ = ["TOO_LONG", "Likelihood", "Prediction", "answer", "likelihoods", "new_tokens_for", "parameters_of"]

TOO_LONG = "prompt_too_long"
_NO_TOKENS = "no_tokens"
_NEW_TOKENS = {
    Rule.FIRST_5_WORDS: 32,
    Rule.FIRST_10_WORDS: 56,
    Rule.FIRST_20_WORDS: 96,
    Rule.FIRST_NUMBER: 64,
}
_NOT_ASKED = ("bad_syntax", "not_enabled")  # failures of calls for which no tool was asked
_KEYS = {name: key for key, name in TOOL_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Prediction:
    """What became of one item."""

    item_id: str
    group: str
    prompt: str
    answers: tuple[str, ...]
    continuation: str  # calls shown
    clean: str  # calls removed: what was scored
    correct: bool
    called: bool  # a tool that was offered was asked
    tool: str | None  # of the first such call, else of the first: its key, or the name the model wrote
    input: str | None
    response: str | None
    failure: str | None  # why the response is empty; see `decode.records.ToolCall`
    new_tokens: int  # of text
    call_tokens: int
    problem: str = ""  # why it was not asked


@dataclass(frozen=True, slots=True)
class Likelihood:
    """How likely a model finds one text, calls disabled."""

    item_id: str
    source: str
    nll: float  # summed over the tokens, nats
    tokens: int  # predicted ones: without a token that begins texts, the first is not
    characters: int
    problem: str = ""


def new_tokens_for(task: Task) -> int:
    """Return how many tokens of text are asked for, by the task's rule.

    Raises:
        UsageError: the task is measured by perplexity.
    """
    if task.rule not in _NEW_TOKENS:
        raise UsageError(f"the task {task.name} has no answers to write; it is measured by perplexity")
    return _NEW_TOKENS[task.rule]


def parameters_of(lm: TransformersLM) -> int:
    """Return how many weights a model has; shared ones count once."""
    return sum(p.numel() for p in lm.network.model.parameters())


def answer(
    toolformer: Toolformer,
    task: Task,
    items: Sequence[Item],
    *,
    top_k: int,
    tools: Sequence[str],
    max_new_tokens: int | None = None,
    max_calls: int = 1,
) -> list[Prediction]:
    """Let a model answer items, greedily, and score what it says without its calls.

    Args:
        toolformer: the model, with at least these tools.
        items: of this task.
        top_k: a call starts where " [" is among this many most likely tokens; 0: tools disabled.
        tools: keys of the tools offered.
        max_new_tokens: default: by the task's rule, see above.
        max_calls: per item (the paper: 1).

    Returns:
        One prediction per item, in their order.

    Raises:
        UsageError: a setting out of range, or the task is measured by perplexity.
        UnknownNameError: a tool that the model was not given.
    """
    length = max_new_tokens if max_new_tokens is not None else new_tokens_for(task)
    network = toolformer.lm.network
    fitting = [i for i, item in enumerate(items) if _fits(network, item.prompt)]
    settings = [
        Settings(
            max_new_tokens=length,
            top_k=top_k,
            max_calls=max_calls if top_k else 0,
            context=items[i].date or "",
            tools=tuple(tools),
        )
        for i in fitting
    ]
    written = toolformer.generate([items[i].prompt for i in fitting], settings) if fitting else []
    by_index = dict(zip(fitting, written, strict=True))
    return [_prediction(task, item, by_index.get(i)) for i, item in enumerate(items)]


def _fits(network: Network, prompt: str) -> bool:
    """Whether the prompt leaves room for a token at least; an empty one needs a token that begins texts."""
    n = len(network.encode(prompt)) + (network.bos is not None)
    return 0 < n < network.context_length


def _prediction(task: Task, item: Item, written: Generation | None) -> Prediction:
    if written is None:
        none = (None, None, None, None, 0, 0, TOO_LONG)
        return Prediction(item.item_id, item.group, item.prompt, item.answers, "", "", False, False, *none)
    asked = [call for call in written.calls if call.failure not in _NOT_ASKED]
    first = next(iter(asked or written.calls), None)
    return Prediction(
        item_id=item.item_id,
        group=item.group,
        prompt=item.prompt,
        answers=item.answers,
        continuation=written.text,
        clean=written.clean,
        correct=score(task, item, written.clean),
        called=bool(asked),
        tool=_KEYS.get(first.tool, first.tool) if first else None,
        input=first.input if first else None,
        response=first.response if first else None,
        failure=first.failure if first else None,
        new_tokens=written.new_tokens,
        call_tokens=written.call_tokens,
    )


# --- perplexity -------------------------------------------------------------------------------------------------------

_Window = tuple[int, list[int], int]  # text, its ids with the first one given, how many of the last are predicted


def likelihoods(lm: TransformersLM, items: Sequence[Item]) -> list[Likelihood]:
    """Return the negative log-likelihood of each item's prompt, calls disabled; a text without tokens says so."""
    from toolformer_core.lm.batches import by_budget

    network = lm.network
    windows = [w for i, item in enumerate(items) for w in _windows(network, i, item.prompt)]
    windows.sort(key=lambda w: len(w[1]))
    nll, tokens = np.zeros(len(items)), np.zeros(len(items), dtype=np.int64)
    for batch in by_budget([len(ids) for _, ids, _ in windows], network.token_budget):
        chosen = [windows[b] for b in batch]
        for (text, _, predicted), value in zip(chosen, _nll(network, chosen), strict=True):
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


def _windows(network: Network, text: int, content: str) -> Iterator[_Window]:
    """Cut a text so that each of its tokens is predicted in exactly one window."""
    lead = [] if network.bos is None else [network.bos]
    ids = network.encode(content)
    width = network.context_length - len(lead)
    step = max(1, width // 2)
    done = 0 if lead else min(1, len(ids))  # nothing says how likely a first token is
    start = 0
    while done < len(ids):
        end = min(start + width, len(ids))
        yield text, [*lead, *ids[start:end]], end - done
        done, start = end, end - width + step  # `step` new tokens come in


def _nll(network: Network, windows: Sequence[_Window]) -> list[float]:
    import torch

    from toolformer_core.lm.batches import pad

    with network.lock, torch.inference_mode():
        ids, mask = pad([np.asarray(w[1], dtype=np.int64) for w in windows], network.device)
        where = torch.arange(ids.shape[1], device=network.device).expand(len(windows), -1)
        hidden = network.hidden(ids, mask, where, None)  # (B, T, D)
        rows: list[int] = []
        columns: list[int] = []
        for row, (_, own, predicted) in enumerate(windows):
            rows += [row] * predicted
            columns += range(len(own) - predicted, len(own))
        row_, column = (torch.tensor(x, dtype=torch.long, device=network.device) for x in (rows, columns))
        each = _log_p(network, hidden[row_, column - 1], ids[row_, column])
        ends = np.cumsum([predicted for _, _, predicted in windows])
        return [-float(part.sum(dtype=np.float64)) for part in np.split(each, ends[:-1])]


def _log_p(network: Network, hidden: Any, targets: Any) -> Any:
    """log p (N,) of targets (N,) after hidden states (N, D), " [" being impossible where it is not the target.

    As `Network.log_p` in chunks, so that no [N, V] is ever whole. A " [" of several tokens cannot be forbidden so.
    """
    import torch

    trigger = network.trigger[0] if len(network.trigger) == 1 else None
    chunk = max(1, (1 << 24) // network.model.config.get_text_config().vocab_size)
    out = []
    for at in range(0, len(hidden), chunk):
        logits, wanted = network.logits(hidden[at : at + chunk]), targets[at : at + chunk]
        if trigger is not None:
            logits[:, trigger] = logits[:, trigger].masked_fill(wanted != trigger, -torch.inf)
        picked = logits.gather(1, wanted[:, None]).squeeze(1)
        out.append(picked - torch.logsumexp(logits, dim=1))
    return torch.cat(out).cpu().numpy()
