"""The stages of one tool over documents in memory: documents, prefilter results -> sample -> execute -> score."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from toolformer_core.annotate.decoys import DecoyPool
from toolformer_core.annotate.execute import execute
from toolformer_core.annotate.sample import SampledDocument, sample
from toolformer_core.annotate.score import score, worth_scoring
from toolformer_core.config import ExecuteConfig, IngestConfig, SampleConfig, ScoreConfig
from toolformer_core.lm.base import LanguageModel
from toolformer_core.records import Document, DrawnCall, Execution, PrefilterResult, Prompt, ScoredCall
from toolformer_core.tools.base import Tool
from toolformer_core.tools.execution.pool import AnnotationPool

_AT_ONCE = IngestConfig().shard_documents  # documents sampled together, as in a build

OnProgress = Callable[[str, int, int], None]  # (tool's key, documents sampled, documents in total)
Question = tuple[str, str]  # input and context: all that a tool receives


@dataclass(frozen=True, slots=True)
class ToolRun:
    sampled: tuple[SampledDocument, ...]  # one per document, in the order given
    executions: Mapping[Question, Execution]
    scored: tuple[ScoredCall, ...]


def run_stages(
    lm: LanguageModel,
    tool: Tool,
    prompt: Prompt,
    documents: Sequence[tuple[Document, PrefilterResult]],
    sampling: SampleConfig,
    execution: ExecuteConfig,
    scoring: ScoreConfig,
    tool_workers: int = 1,
    on_progress: OnProgress | None = None,
) -> ToolRun:
    """Sample, execute and score the calls of one tool, in the documents that the prefilter kept.

    A ModelError if the model cannot be reached, or its context has no room for a document beside the prompt; a
    ToolformerError if the tool can answer nothing.
    """
    contexts = {document.doc_id: prefiltered.context for document, prefiltered in documents}
    sampled = sample_all(lm, prompt, tool, documents, sampling, on_progress)
    samples = [call for one in sampled for call in one.calls]
    with closing(AnnotationPool(tool, timeout_s=execution.timeout_s, at_once=tool_workers)) as pool:
        answers = execute(tool, questions(samples, contexts), execution, pool=pool)
    executions = {(answer.input, answer.context): answer for answer in answers}
    texts = {document.doc_id: document.text for document, _ in documents}
    answered, _ = worth_scoring(texts, answered_calls(samples, contexts, executions), sampling)
    decoys = DecoyPool.of(scoring, tool.key, ((call.doc_id, response) for call, response in answered))
    scored = score(lm, tool.name, texts, answered, scoring, decoys)
    return ToolRun(tuple(sampled), executions, tuple(scored))


def sample_all(
    lm: LanguageModel,
    prompt: Prompt,
    tool: Tool,
    documents: Sequence[tuple[Document, PrefilterResult]],
    config: SampleConfig,
    on_progress: OnProgress | None = None,
) -> list[SampledDocument]:
    """Sample as many documents at a time as a shard of a build holds; the arguments are those of `run_stages`."""
    sampled: list[SampledDocument] = []
    for start in range(0, len(documents), _AT_ONCE):

        def report(done: int, before: int = start) -> None:
            if on_progress:
                on_progress(tool.key, before + done, len(documents))

        some = documents[start : start + _AT_ONCE]
        sampled += sample(lm, prompt, tool.name, some, config, report)
    return sampled


def questions(samples: Iterable[DrawnCall], contexts: Mapping[str, str]) -> list[Question]:
    """Return the requests to a tool: the calls among the samples, repeats included, and the contexts by document id."""
    return [(call.input, contexts[call.doc_id]) for call in samples if call.outcome == "ok"]


def answered_calls(
    samples: Iterable[DrawnCall], contexts: Mapping[str, str], executions: Mapping[Question, Execution]
) -> Iterator[tuple[DrawnCall, str]]:
    for call in samples:
        execution = executions.get((call.input, contexts[call.doc_id])) if call.outcome == "ok" else None
        if execution is not None and execution.response:
            yield call, execution.response
