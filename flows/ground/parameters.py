"""The parameters of `ground`, declared once: Prefect's form, the options of `toolformer ground`, a table of docs."""

from typing import Annotated, Literal

from pydantic import Field

from flows.forms import fields
from toolformer_core.config import TOOL_NAMES
from toolformer_core.grounding.records import GEAR_GAMMA, GEAR_LAMBDA

_SCORES = fields.Option("Scores")


class GroundParameters(fields.ToolChoice):
    """Queries of benchmarks, a library of tools, and the small LM that chooses among them."""

    model_config = fields.FORM

    task: Annotated[
        list[Annotated[str, fields.OneOf(fields.benchmark_names, "^[a-z0-9-]+=/")]],
        fields.Option(note="; may be repeated", convert=fields.as_list, repeated=True),
    ] = Field(
        default_factory=list,
        description="Benchmark as NAME=PATH, or NAME where it needs no file or comes from the hub: "
        "svamp=/data/SVAMP.json, nq=..., mlqa-de=..., tatoeba-fr=..., queries=... (your own), small-world",
    )
    data: fields.DataFolder = Field("toolformer-data", description="Data folder or URL for scores and answers")
    model: fields.ModelName = Field(
        "embedded",
        description="The small LM, which answers and writes calls: 'embedded', a folder written by save_pretrained, "
        "or a hub name",
    )
    large_model: fields.ModelName | None = Field(
        None, description="The large LM, which writes the final call (default: the small one)"
    )
    toolformer: fields.ModelName | None = Field(
        None,
        description="A finetuned model whose own choice is compared: the folder of a model or of a finetune job "
        "(default: none)",
    )
    limit: int | None = Field(
        None, gt=0, description="Ask at most this many items of each benchmark, chosen by `seed` (default: all)"
    )
    seed: int = Field(0, ge=0, description="Chooses items, examples for few-shot and distractors")
    answers: bool = Field(
        True, description="Answer every query with the tool that each method chose; without, tools are only chosen"
    )
    tools: Annotated[fields.Tools, fields.TOOLS] = Field(list(TOOL_NAMES), description="Tools of the library")
    tool: Annotated[fields.References, fields.TOOLS] = []  # noqa: RUF012 - pydantic copies it
    distractors: Annotated[int, fields.TOOLS] = Field(
        0, ge=0, description="Plausible generated tools that make the library larger; they come last in it"
    )
    mock: Annotated[list[str], fields.Listed, fields.TOOLS] = Field(
        default_factory=list,
        description="Keys of tools that are ranked by their stored example response, without being called; all: every "
        "tool that has one",
    )
    demonstrations: Annotated[Literal["questions", "annotation"] | None, fields.TOOLS] = Field(
        None,
        description="How calls are shown to the small LM: by the tools' example questions or by their annotation "
        "prompts (default: questions; for the small world annotation)",
    )
    passages: Annotated[fields.Passages, fields.TOOLS] = None
    qa_reader: Annotated[fields.QAReader, fields.TOOLS] = None
    translator: Annotated[fields.TranslatorModel, fields.TOOLS] = None
    encoder: Annotated[str, _SCORES] = Field(
        "",
        description="Embeds queries and descriptions: the folder or hub name of a sentence-transformers or model2vec "
        "model (default: hidden states of the small LM)",
    )
    patterns: Annotated[str, _SCORES] = Field(
        "standard", description="Pattern set: standard (ours) or authors (as GEAR's code counts)"
    )
    gamma: Annotated[float, _SCORES] = Field(
        GEAR_GAMMA, ge=0, le=1, description="Weight of the semantic score (authors' code: 0.75)"
    )
    smoothing: Annotated[float, _SCORES] = Field(
        GEAR_LAMBDA, ge=0, description="Lambda, added to every count of the preliminary answer (authors' code: 1)"
    )
    threshold: Annotated[float | None, _SCORES] = Field(
        None, description="Smallest score of a tool that may be chosen (default: the best one always is)"
    )
    answer_prompt: Annotated[str | None, _SCORES] = Field(
        None,
        description="Asks for the preliminary answer, with one {query} (default: 'Q: {query}\\nA:'; for the small "
        "world '{query}')",
    )
    max_answer_tokens: Annotated[int, _SCORES] = Field(24, gt=0, description="Tokens of an answer without a tool")
    max_call_tokens: Annotated[int, _SCORES] = Field(48, gt=0, description="Tokens of a call")
    call_top_p: Annotated[float | None, _SCORES] = Field(
        None,
        gt=0,
        le=1,
        description="Sample the small LM's calls at this top_p (authors' code: 0.9; default: the most likely call)",
    )
    shard_items: Annotated[int, fields.RUNNING] = Field(
        128, gt=0, description="Queries per shard, the unit of work and of restart; more are faster with many tools"
    )
    workers: Annotated[fields.Workers, fields.RUNNING] = 1
    gpus: Annotated[fields.Gpus, fields.RUNNING] = None
