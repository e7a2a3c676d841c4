"""Where a model would open brackets in documents of C*: p(" [") at their places, and the tools it would call there.

One pass over x*, with its calls and responses as in training, gives p(" ["), the product over its tokens, at every
token that starts outside a call. Behind each " [" among the k most likely tokens the model writes on, greedily, until
it has named a tool. Whether an opening is wanted, `trigger` decides; nothing here knows thresholds.

    x*       The sum of 27 and 8 is [Calculator(27 + 8) -> 35] 35 .
    places  |   |   |  |  |   | |  |                          |  |
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from toolformer_core.decode.trigger import Opening
from toolformer_core.errors import ContextError
from toolformer_core.lm.hf.batches import by_budget, key_values, one_row, pad
from toolformer_core.lm.hf.engine import TransformersLM
from toolformer_core.lm.hf.model import HFModel
from toolformer_core.lm.hf.prefixes import rest_of_trigger
from toolformer_core.lm.hf.sampling import draw_calls
from toolformer_core.lm.tokens import encode_following, tokenize
from toolformer_core.lm.windowing import window_bounds
from toolformer_core.records import Example
from toolformer_core.syntax import CLOSE, OPEN, name_begun, parse

__all__ = ["find_openings", "names_of"]

_EARLY = 5  # tokens over which the loss of a position is taken (Toolformer §4.1)
_SPARE = 2  # tokens beyond those of the longest name, which may be written in other tokens
_SMALLEST_WINDOW = 16  # tokens of a document that the context must leave room for
_MAX_LOGITS = 1 << 24  # at a time


@dataclass(frozen=True, slots=True)
class _Document:
    """An example's tokens and where it has calls."""

    ids: NDArray[np.int64]  # (n,)
    outside: NDArray[np.bool_]  # (n,) whether the token starts outside a call, and may follow a " [" of ours
    calls: Mapping[int, str]  # token before which a call stands -> the tool's key


@dataclass(frozen=True, slots=True)
class _Row:
    """A window of a document as it is fed to the model."""

    document: int
    ids: NDArray[np.int64]  # (t,) [bos] and tokens
    shift: int  # index in `ids` of the document's first token, if it were there
    places: NDArray[np.int64]  # (m,) tokens of the document

    def __len__(self) -> int:
        return len(self.ids)


def names_of(examples: Sequence[Example]) -> dict[str, str]:
    """Return the names in calls of all tools that some examples call, by key, in the order of the keys."""
    written = {call.tool: example.text[call.start : call.end] for example in examples for call in example.calls}
    return {key: parse(written[key][len(OPEN) : -len(CLOSE)])[0].tool for key in sorted(written)}


def find_openings(
    lm: TransformersLM,
    examples: Sequence[Example],
    names: Mapping[str, str],
    *,
    top_k: int = 10,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Opening]:
    """Find the openings in some documents, in their order.

    Args:
        lm: a model that was finetuned on calls.
        examples: documents that it has not been trained on.
        names: the tools' names in calls by their keys.
        top_k: k of decoding.
        on_progress: called with the number of windows done and of all windows.

    Raises:
        ContextError: the model's context is too short for a document and a call's name.
    """
    hf_model = lm.hf_model
    name_tokens = _SPARE + max((len(encode_following(hf_model.tokenizer, f"{n}(")) for n in names.values()), default=0)
    documents = _documents(hf_model, examples)
    rows = sorted(_rows(hf_model, documents, name_tokens), key=len)
    found: list[tuple[int, int, Opening]] = []
    done = 0
    for batch in by_budget([len(row) for row in rows], hf_model.budget.tokens):
        chosen = [rows[b] for b in batch]
        for part in hf_model.budget.in_parts(chosen, lambda part: _read(hf_model, part, top_k, name_tokens)):
            for document, token, p, text in part:
                named = next((key for key, name in names.items() if name == name_begun(text)), "")
                found.append((document, token, _opening(documents[document], token, p, named)))
        done += len(chosen)
        if on_progress is not None:
            on_progress(done, len(rows))
    return [opening for _, _, opening in sorted(found, key=lambda one: one[:2])]


def _opening(document: _Document, token: int, probability: float, named: str) -> Opening:
    called = document.calls.get(token, "")
    until = np.flatnonzero(document.outside[token + 1 :])[: _EARLY - 1] + token + 1
    early = not called and any(document.calls.get(after) == named for after in until.tolist())
    return Opening(named, called, probability, early)


def _documents(hf_model: HFModel, examples: Sequence[Example]) -> list[_Document]:
    out = []
    for example, tokens in zip(examples, tokenize(hf_model.tokenizer, [e.text for e in examples]), strict=True):
        outside = tokens.starts_character.copy()
        calls = {}
        for call in example.calls:
            outside[(tokens.cuts > call.start) & (tokens.cuts < call.end)] = False
            at = tokens.token_at(call.start)
            if at < len(tokens.ids) and tokens.cuts[at] == call.start:  # else no token starts with the call
                calls[at] = call.tool
        if hf_model.bos is None:
            outside[:1] = False  # the first token has no probability
        out.append(_Document(tokens.ids, outside, calls))
    return out


def _rows(hf_model: HFModel, documents: Sequence[_Document], name_tokens: int) -> Iterator[_Row]:
    lead = hf_model.lead
    width = hf_model.context_length - len(lead) - len(hf_model.trigger) - name_tokens
    if width < _SMALLEST_WINDOW:
        raise ContextError(
            f"model {hf_model.name!r} has a context of {hf_model.context_description}, which leaves {width} tokens for "
            "a document; use a model with a longer context"
        )
    for number, document in enumerate(documents):
        for start, end, first, last in window_bounds(len(document.ids), width):
            places = np.flatnonzero(document.outside[first:last]) + first
            if len(places):
                ids = np.asarray([*lead, *document.ids[start:end]], dtype=np.int64)
                yield _Row(number, ids, len(lead) - start, places)


def _read(hf_model: HFModel, rows: Sequence[_Row], top_k: int, name_tokens: int) -> list[tuple[int, int, float, str]]:
    """Return document, token, p(" [") and the text after " [" of every opening in some windows."""
    with hf_model.lock, torch.inference_mode():
        ids, _ = pad([row.ids for row in rows], hf_model.device)
        position = torch.arange(ids.shape[1], device=hf_model.device).expand(len(rows), -1)
        cache = DynamicCache()
        hidden = hf_model.hidden(ids, None, position, cache)  # (B, T, D); no mask: padding follows all that is read
        states = torch.cat([hidden[b, row.places + row.shift - 1] for b, row in enumerate(rows)])  # (N, D)
        kv = key_values(cache)
        prefixes = [one_row(kv, b) for b in range(len(rows))]
        tokens = [(row.document, int(token)) for row in rows for token in row.places]
        places = [(b, int(token) + row.shift) for b, row in enumerate(rows) for token in row.places]
        ranks, log_p = _measure(hf_model, states, hf_model.trigger[0])
        inside = np.flatnonzero(ranks < top_k)
        log_p, likely = log_p[inside], np.ones(len(inside), dtype=np.bool_)
        for some, token, after in rest_of_trigger(hf_model, prefixes, [places[i] for i in inside]):
            ranks, more = _measure(hf_model, after, token)
            likely[some] &= ranks < top_k
            log_p[some] += more
        inside, log_p = inside[likely], log_p[likely]
        at, common = [places[i] for i in inside], len(hf_model.lead)
        drawn = draw_calls(hf_model, prefixes, common, at, [0] * len(at), name_tokens, 0.0) if at else []
    p = np.exp(log_p.astype(np.float64))
    return [(*tokens[i], float(p[j]), drawn[j][0].text) for j, i in enumerate(inside)]


def _measure(hf_model: HFModel, states: torch.Tensor, token: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the rank (N,) of a token after hidden states (N, D), and its log-probability (N,)."""
    chunk = max(1, _MAX_LOGITS // hf_model.lm_head.size)
    ranks, log_p = [], []
    for at in range(0, len(states), chunk):
        logits = hf_model.logits(states[at : at + chunk])
        own = logits[:, token]
        ranks.append((logits > own[:, None]).sum(dim=1))
        log_p.append(own - logits.logsumexp(dim=1))
    return torch.cat(ranks).cpu().numpy(), torch.cat(log_p).cpu().numpy()
