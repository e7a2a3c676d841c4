"""A Toolformer as a model of lm-evaluation-harness, so that its tasks run with tools. Needs the extra `harness`.

Texts are written with tools and returned without their calls, which `written` holds. Likelihoods are measured with
calls disabled, k = 0 in decoding: p(" [") = 0 unless the text has that token. The model's beginning-of-text token is
put in front of every context. Nothing else in the package imports this module.
"""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from toolformer_core.decode.records import Finished, Generation, GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.errors import ModelError, UsageError
from toolformer_core.evaluate.answer import NOT_REQUESTED
from toolformer_core.evaluate.likelihood import log_likelihoods
from toolformer_core.lm.hf.model import HFModel
from toolformer_core.lm.tokens import encode_following, tokenize
from toolformer_core.records import digest_of

try:
    from lm_eval.api.model import TemplateLM
    from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
except ImportError as exc:
    raise UsageError(
        "lm-evaluation-harness is not installed; install it with: pip install 'toolformer-platform[harness]'"
    ) from exc

_LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # the first one given counts
_ONLY_SAMPLING = ("top_k", "min_p", "typical_p")  # no effect in greedy decoding; not `GenerationSettings.top_k`


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    task: str | None  # the harness's name of the task
    doc_id: int | None  # the harness's number of the document in the task
    text: str  # as returned to the harness
    generation: Generation  # including calls
    truncated: bool  # whether the start of the context was cut off because it was too long for the model


class HarnessModel(TemplateLM):  # type: ignore[misc]  # lm_eval has no types
    """A model with its tools, for `lm_eval.simple_evaluate(model=HarnessModel(toolformer, settings), ...)`.

    A task's own `generation_kwargs` override the settings; by default these are the paper's k = 10 and one call, and
    256 tokens (the harness's default) if the task names no length. A ModelError if the model has no bos or eos token.
    """

    def __init__(self, toolformer: Toolformer, settings: GenerationSettings | None = None) -> None:
        super().__init__()
        if toolformer.lm.hf_model.bos is None:
            raise ModelError(
                f"model {toolformer.lm.name!r} has no bos or eos token, but the harness needs the probability of a "
                "text's first token; give its tokenizer one"
            )
        self.toolformer = toolformer
        self.settings = settings or GenerationSettings(max_new_tokens=256)
        self.written: list[Written] = []  # of all runs

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Continue each context; return the texts without calls. Repeated requests differ, but equally in every run."""
        repeats: collections.Counter[str] = collections.Counter()
        prompts, settings = [], []
        for context, keywords in (request.args for request in requests):
            request_settings = settings_for(self.settings, keywords)
            if request_settings.temperature:
                digest = digest_of("harness", str(request_settings.seed), str(repeats[context]), context)
                request_settings = dataclasses.replace(request_settings, seed=int(digest[:16], 16))
                repeats[context] += 1
            prompts.append(_last_part(self._hf_model, context, request_settings.max_new_tokens))
            settings.append(request_settings)
        done: dict[int, Written] = {}
        for event in self.toolformer.stream(prompts, settings):
            if isinstance(event, Finished):
                i, request = event.index, requests[event.index]
                text = _until(event.generation.clean, settings[i].stop)
                truncated = prompts[i] != request.args[0]
                done[i] = Written(request.task_name, request.doc_id, text, event.generation, truncated)
                self.cache_hook.add_partial("generate_until", request.args, text)
        written = [done[i] for i in range(len(requests))]
        self.written += written
        return [one.text for one in written]

    def calls_per_tool(self, task: str | None = None) -> dict[str, int]:
        """Return how often each tool was called, by its name in calls, answered or not, in one task or all."""
        calls = (call for w in self.written if task in (None, w.task) for call in w.generation.calls)
        return dict(collections.Counter(call.tool for call in calls if call.failure not in NOT_REQUESTED))

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        """Score (texts, context ids, continuation ids), as made by `TemplateLM.loglikelihood`."""
        width = self._hf_model.context_length
        rows = []
        for _texts, context, continuation in requests:
            if len(continuation) > width:
                raise UsageError(
                    f"a continuation of {len(continuation)} tokens does not fit into the context of {width} of model "
                    f"{self._hf_model.name!r}; leave the task out, or use a model with a longer context"
                )
            ids = [*context, *continuation]
            # the last token is not fed to the model, so bos and `width` others fit
            rows.append((ids if len(ids) <= width + 1 else [ids[0], *ids[-width:]], len(continuation)))
        scores = log_likelihoods(self._hf_model, rows)
        for (texts, _c, _d), score in zip(requests, scores, strict=True):
            self.cache_hook.add_partial("loglikelihood", texts, score)
        return scores

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Return log p of each request's text, counting every token once, in the harness's context-sized windows."""
        hf_model = self._hf_model
        rows, owners = [], []
        for i, request in enumerate(requests):
            ids = hf_model.encode(request.args[0])
            windows = get_rolling_token_windows(ids, self.prefix_token_id, hf_model.context_length, 1)
            for context, predicted in map(make_disjoint_window, windows):
                rows.append(([*context, *predicted], len(predicted)))
                owners.append(i)
        sums = [0.0] * len(requests)
        for i, (log_p, _) in zip(owners, log_likelihoods(hf_model, rows), strict=True):
            sums[i] += log_p
        for request, log_p in zip(requests, sums, strict=True):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, log_p)
        return sums

    @property
    def _hf_model(self) -> HFModel:
        return self.toolformer.lm.hf_model

    @property
    def eot_token_id(self) -> int:
        assert self._hf_model.bos is not None
        return self._hf_model.bos

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Return token ids, with the beginning-of-text token in front unless `add_special_tokens` is False."""
        ids = self._hf_model.encode(string)
        return ids if add_special_tokens is False or ids[:1] == [self.eot_token_id] else [self.eot_token_id, *ids]

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Encode as the harness does; a continuation that merges into the context is encoded separately."""
        context_ids, continuation_ids = super()._encode_pair(context, continuation)
        return context_ids, continuation_ids or encode_following(self._hf_model.tokenizer, continuation)

    def get_model_info(self) -> dict[str, Any]:
        info = {f"toolformer_{k}": v for k, v in dataclasses.asdict(self.settings).items()}
        return {"model_name": self._hf_model.name, "model_sha": self.toolformer.lm.digest, **info}

    def apply_chat_template(self, *_: Any, **__: Any) -> str:
        raise UsageError("a Toolformer continues texts and has no chat template; leave out apply_chat_template")

    chat_template = apply_chat_template
    tokenizer_name = property(apply_chat_template)  # only used with a chat template


def settings_for(base: GenerationSettings, keywords: Mapping[str, Any]) -> GenerationSettings:
    """Return the settings of one request: the base settings, overridden by the task's `generation_kwargs`.

    `do_sample: true` without a temperature uses the base temperature, or 1 if that is 0; without `do_sample`, one above
    0 samples. A UsageError if a keyword would change the text and is not supported, or a value is out of range.
    """
    rest = {k: v for k, v in keywords.items() if v is not None}
    until = rest.pop("until", ())
    stop = [until] if isinstance(until, str) else list(until)
    lengths = [int(rest.pop(name)) for name in _LENGTHS if name in rest]
    sample, given = rest.pop("do_sample", None), rest.pop("temperature", None)
    if sample is None:
        temperature = base.temperature if given is None else float(given)
    else:
        temperature = (base.temperature or 1.0 if given is None else float(given)) if sample else 0.0
    top_p = rest.pop("top_p", base.top_p)
    if not temperature:
        rest = {k: v for k, v in rest.items() if k not in _ONLY_SAMPLING}
    if rest:
        raise UsageError(
            f"generation_kwargs {', '.join(sorted(rest))} are not supported; use until, {', '.join(_LENGTHS)}, "
            "do_sample, temperature and top_p"
        )
    return dataclasses.replace(
        base,
        stop=tuple(dict.fromkeys([*base.stop, *(s for s in stop if s)])),
        max_new_tokens=lengths[0] if lengths else base.max_new_tokens,
        temperature=temperature,
        top_p=float(top_p) if temperature else base.top_p,
    )


def _until(text: str, stop: Sequence[str]) -> str:
    """Cut at the first stop string, which removing a call may have created."""
    return text[: min((at for s in stop if (at := text.find(s)) >= 0), default=len(text))]


def _last_part(hf_model: HFModel, text: str, new_tokens: int) -> str:
    """Cut off the start of the text until `new_tokens` fit after it, but keep at least half a context."""
    room = max(hf_model.context_length - new_tokens - 1, hf_model.context_length // 2)
    while len(hf_model.encode(text)) > room:
        (tokens,) = tokenize(hf_model.tokenizer, [text])
        start = max(1, len(tokens.ids) - room)
        cut = next((int(c) for c in tokens.cuts[start:][tokens.starts_character[start:]] if c > 0), len(text))
        text = text[cut:]
    return text
