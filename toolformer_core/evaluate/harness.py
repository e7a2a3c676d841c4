"""A Toolformer as a model of lm-evaluation-harness: its tasks run with tools on. Needs the extra `harness`.

    | the harness asks for   | it gets                                                                           |
    |------------------------|-----------------------------------------------------------------------------------|
    | generate_until         | the text without its calls; what was called stays readable in `written`           |
    | loglikelihood          | log p of the continuation, calls disabled, and whether greedy decoding writes it  |
    | loglikelihood_rolling  | log p of the whole text, calls disabled, in the harness's own windows             |

Calls disabled is what k = 0 means in decoding: p(" [") = 0 wherever the text has no such token. The model's token that
begins texts stands in front of every context, as in decoding and training here.

This module imports lm_eval, so nothing else in the package imports it. It knows no tasks and no metrics.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from toolformer_core.decode.records import Finished, Generation, Settings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import ModelError, UsageError
from toolformer_core.lm.batches import by_budget, pad
from toolformer_core.lm.network import Network
from toolformer_core.lm.tokens import encode_following, tokenize
from toolformer_core.records import digest_of

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
except ImportError as exc:
    raise UsageError(
        "lm-evaluation-harness is not installed; pip install 'toolformer-platform[harness]' brings it"
    ) from exc

__all__ = ["HarnessModel", "Written"]

_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # the first given counts
_ONLY_IN_DRAWS = ("top_k", "min_p", "typical_p")  # of no meaning to greedy decoding; another top_k than ours
_NOT_ASKED = ("bad_syntax", "not_enabled")  # failures of calls for which no tool was asked


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """What was written for one request of `generate_until`."""

    task: str | None  # the harness's name
    doc_id: int | None  # the harness's number of the document in the task
    text: str  # handed to the harness
    generation: Generation  # calls and all
    truncated: bool  # the context's beginning was left out, as it was too long for the model


class HarnessModel(TemplateLM):  # type: ignore[misc]  # lm_eval has no types
    """A model with its tools, for `lm_eval.simple_evaluate(model=HarnessModel(toolformer, settings), ...)`.

    Args:
        toolformer: the model and its tools.
        settings: how it writes; a task's own `generation_kwargs` go before. Default: the paper's k = 10 and one call,
            and at most 256 tokens (the harness's default) where the task names no length. `top_k=0` is the same model
            without tools.

    Raises:
        ModelError: the model has no token that begins or ends texts, so nothing says how likely a first token is.
    """

    def __init__(self, toolformer: Toolformer, settings: Settings | None = None) -> None:
        super().__init__()
        if toolformer.lm.network.bos is None:
            raise ModelError(
                f"model {toolformer.lm.name!r} has no bos or eos token, and the harness asks how likely a text's "
                "first token is; give its tokenizer one"
            )
        self.toolformer = toolformer
        self.settings = settings or Settings(max_new_tokens=256)
        self.written: list[Written] = []  # of all runs since it was made or `clear` was called

    # --- writing ------------------------------------------------------------------------------------------------------

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Write on from each request's context, with tools; return the texts without calls, in the requests' order.

        Of a request's keywords `until`, `max_gen_toks` (or another of its names), `do_sample`, `temperature` and
        `top_p` are honoured. Repeated requests draw differently from each other, and the same in every run.

        Raises:
            UsageError: a keyword that would change the text and is not supported.
        """
        seen: collections.Counter[str] = collections.Counter()
        prompts, settings, truncated = [], [], []
        for request in requests:
            context, keywords = request.args
            own = settings_for(self.settings, keywords)
            if own.temperature:
                own = dataclasses.replace(own, seed=_seed(own.seed, context, seen[context]))
                seen[context] += 1
            prompt = _last_part(self._network, context, own.max_new_tokens)
            prompts.append(prompt)
            settings.append(own)
            truncated.append(prompt != context)
        done: dict[int, Written] = {}
        for event in self.toolformer.stream(prompts, settings):
            if isinstance(event, Finished):
                i, request = event.index, requests[event.index]
                text = _until(event.generation.clean, settings[i].stop)
                done[i] = Written(request.task_name, request.doc_id, text, event.generation, truncated[i])
                self.cache_hook.add_partial("generate_until", request.args, text)
        self.written += [done[i] for i in range(len(requests))]
        return [done[i].text for i in range(len(requests))]

    def calls_per_tool(self, task: str | None = None) -> dict[str, int]:
        """Return how many calls each tool had, by its name in calls, whether it could answer or not.

        Calls for which no tool is asked (they do not parse, or name none that may be called) are left out.

        Args:
            task: the harness's name of one; None: all of them.
        """
        return dict(
            collections.Counter(
                call.tool
                for w in self.written
                if task in (None, w.task)
                for call in w.generation.calls
                if call.failure not in _NOT_ASKED
            )
        )

    def clear(self) -> None:
        """Forget what was written."""
        self.written.clear()

    # --- log-likelihoods ----------------------------------------------------------------------------------------------

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        """Score (texts, context ids, continuation ids); `TemplateLM.loglikelihood` makes these."""
        width = self._network.context_length
        rows = []
        for _texts, context, continuation in requests:
            if len(continuation) > width:
                raise UsageError(
                    f"a continuation of {len(continuation)} tokens does not fit into the context of {width} of model "
                    f"{self._network.name!r}; leave the task out, or take a model with a longer context"
                )
            ids = [*context, *continuation]
            # the last token is not fed, so bos and `width` others fit
            rows.append((ids if len(ids) <= width + 1 else [ids[0], *ids[-width:]], len(continuation)))
        scores = _log_likelihoods(self._network, rows)
        for (texts, _c, _d), score in zip(requests, scores, strict=True):
            self.cache_hook.add_partial("loglikelihood", texts, score)
        return scores

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Return log p of each request's text, every token once, in the harness's windows of one context each."""
        network = self._network
        rows: list[tuple[list[int], int]] = []
        of: list[int] = []
        for i, request in enumerate(requests):
            ids = network.encode(request.args[0])
            for pair in get_rolling_token_windows(ids, self.prefix_token_id, network.context_length, 1):
                context, predicted = make_disjoint_window(pair)
                rows.append(([*context, *predicted], len(predicted)))
                of.append(i)
        sums = [0.0] * len(requests)
        for i, (log_p, _) in zip(of, _log_likelihoods(network, rows), strict=True):
            sums[i] += log_p
        for request, log_p in zip(requests, sums, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, log_p)
        return sums

    # --- what the harness wants to know -------------------------------------------------------------------------------

    @property
    def _network(self) -> Network:
        return self.toolformer.lm.network

    @property
    def eot_token_id(self) -> int:
        assert self._network.bos is not None
        return self._network.bos

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Token ids, behind the token that begins texts unless `add_special_tokens` is False."""
        ids = self._network.encode(string)
        return ids if add_special_tokens is False or ids[:1] == [self.eot_token_id] else [self.eot_token_id, *ids]

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """The harness's own cut; a continuation that a merge with the context swallowed is encoded by itself."""
        before, behind = super()._encode_pair(context, continuation)
        return before, behind or encode_following(self._network.tokenizer, continuation)

    def get_model_info(self) -> dict[str, Any]:
        """What the results say of the model."""
        info = {f"toolformer_{k}": v for k, v in dataclasses.asdict(self.settings).items()}
        return {"model_name": self._network.name, "model_sha": self.toolformer.lm.digest, **info}

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Raise a UsageError: a Toolformer writes on from texts."""
        raise _no_chat()

    def chat_template(self, chat_template: bool | str = False) -> str:
        """Return "", or raise a UsageError if one is asked for."""
        if chat_template:
            raise _no_chat()
        return ""

    @property
    def tokenizer_name(self) -> str:
        """Asked for with a chat template only: raise a UsageError."""
        raise _no_chat()


def _no_chat() -> UsageError:
    return UsageError("a Toolformer writes on from texts and has no chat template; leave out apply_chat_template")


def settings_for(base: Settings, keywords: Mapping[str, Any]) -> Settings:
    """Return the settings of one request: the base's, and before them the task's `generation_kwargs`.

    `do_sample: false` is greedy whatever the temperature, `do_sample: true` without a temperature is the base's, or 1;
    without `do_sample` a temperature above 0 draws.

    Raises:
        UsageError: a keyword that would change the text and is not supported, or a value out of range.
    """
    rest = {k: v for k, v in keywords.items() if v is not None}
    until = rest.pop("until", ())
    stop = [until] if isinstance(until, str) else list(until)
    lengths = [int(rest.pop(name)) for name in _LENGTHS if name in rest]
    sample, warmth = rest.pop("do_sample", None), rest.pop("temperature", None)
    if sample is None:
        temperature = base.temperature if warmth is None else float(warmth)
    else:
        temperature = (base.temperature or 1.0 if warmth is None else float(warmth)) if sample else 0.0
    top_p = rest.pop("top_p", base.top_p)
    if not temperature:
        rest = {k: v for k, v in rest.items() if k not in _ONLY_IN_DRAWS}
    if rest:
        raise UsageError(
            f"generation_kwargs {', '.join(sorted(rest))} are not supported; there are until, {', '.join(_LENGTHS)}, "
            "do_sample, temperature and top_p"
        )
    return dataclasses.replace(
        base,
        stop=tuple(dict.fromkeys([*base.stop, *(s for s in stop if s)])),
        max_new_tokens=lengths[0] if lengths else base.max_new_tokens,
        temperature=temperature,
        top_p=float(top_p) if temperature else base.top_p,
    )


def _seed(seed: int, context: str, repeat: int) -> int:
    """A seed of 64 bits that differs by context and by how often it has been asked before."""
    return int(digest_of("harness", str(seed), str(repeat), context)[:16], 16)


def _until(text: str, stop: Sequence[str]) -> str:
    """Cut at the first stop string: taking a call out may have joined one."""
    return text[: min((at for s in stop if (at := text.find(s)) >= 0), default=len(text))]


def _last_part(network: Network, text: str, new_tokens: int) -> str:
    """Leave out the text's beginning until `new_tokens` fit behind it, but keep half a context at least."""
    room = max(network.context_length - new_tokens - 1, network.context_length // 2)
    while len(network.encode(text)) > room:
        (tokens,) = tokenize(network.tokenizer, [text])
        start = max(1, len(tokens.ids) - room)
        cut = next((int(c) for c in tokens.cuts[start:][tokens.starts_character[start:]] if c > 0), len(text))
        text = text[cut:]
    return text


def _log_likelihoods(network: Network, rows: Sequence[tuple[list[int], int]]) -> list[tuple[float, bool]]:
    """Return log p of the last n tokens of each (ids, n), calls disabled, and whether each was the most likely one."""
    out = [(0.0, True)] * len(rows)
    order = sorted((i for i, (_, n) in enumerate(rows) if n), key=lambda i: len(rows[i][0]))
    for batch in by_budget([len(rows[i][0]) for i in order], network.token_budget):
        chosen = [order[b] for b in batch]
        for i, score in zip(chosen, _score_batch(network, [rows[i] for i in chosen]), strict=True):
            out[i] = score
    return out


def _score_batch(network: Network, rows: Sequence[tuple[list[int], int]]) -> Iterator[tuple[float, bool]]:
    *before, last = network.trigger
    at, targets, barred = [], [], []
    for b, (ids, n) in enumerate(rows):
        for j in range(len(ids) - n, len(ids)):
            at.append((b, j - 1))
            targets.append(ids[j])
            opens = not before or ids[max(0, j - len(before)) : j] == before
            barred.append(opens and ids[j] != last)
    with network.lock, torch.inference_mode():
        device = network.device
        fed, mask = pad([np.asarray(ids[:-1], dtype=np.int64) for ids, _ in rows], device)
        where = torch.arange(fed.shape[1], device=device).expand(len(rows), -1)
        row, column = torch.tensor(at, device=device).T
        hidden = network.hidden(fed, mask, where, None)[row, column]  # (N, D)
        log_p, best = _disabled(network, hidden, torch.tensor(targets), torch.tensor(barred))
    start = 0
    for _, n in rows:
        yield float(log_p[start : start + n].sum()), bool(best[start : start + n].all())
        start += n


def _disabled(network: Network, hidden: Any, targets: Any, barred: Any) -> tuple[Any, Any]:
    """log p (N,) in float64 of targets (N,), and whether each is the most likely; " [" impossible where barred (N,)."""
    chunk = max(1, (1 << 24) // network.model.config.get_text_config().vocab_size)  # no [N, V] is ever whole
    log_p, best = [], []
    for at in range(0, len(hidden), chunk):
        logits = network.logits(hidden[at : at + chunk])
        wanted, bars = (x[at : at + chunk].to(logits.device) for x in (targets, barred))
        logits[:, network.trigger[-1]] = logits[:, network.trigger[-1]].masked_fill(bars, -torch.inf)
        log_p.append(logits.gather(1, wanted[:, None]).squeeze(1) - torch.logsumexp(logits, dim=1))
        best.append(logits.argmax(dim=1) == wanted)
    return torch.cat(log_p).double().cpu().numpy(), torch.cat(best).cpu().numpy()
