"""The parameters of `evaluate`, declared once: Prefect's form, the command's options, a table of the docs."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field, WithJsonSchema

from flows.forms import fields
from flows.forms.calls import Trigger
from toolformer_core.config import TOOL_NAMES


def _arms() -> Iterable[str]:
    from tasks.specs.evaluation_spec import ARMS

    return ARMS


class EvaluateParameters(fields.ToolChoice):
    """A benchmark, put to the arms of a model."""

    model_config = fields.FORM

    task: Annotated[str, fields.OneOf(fields.benchmark_names)] = Field(
        description="Benchmark: svamp, gsm8k, nq, webqs, mlqa-de, dateset, perplexity, small-world, "
        "small-world-chains, ..."
    )
    path: fields.AbsolutePath | None = Field(
        None,
        description="The benchmark's published file or folder (default: dateset is generated, small-world embedded, "
        "others come from the hub)",
    )
    data: fields.DataFolder = Field(
        "toolformer-data", description="Data folder or URL for the predictions; finetuned models are looked for there"
    )
    model: fields.ModelName = Field(
        "embedded",
        description="The base model, M: 'embedded', a folder written by save_pretrained, a GGUF file, or a hub name",
    )
    cc: fields.ModelName | None = Field(
        None, description="M + CC: the folder of a model or of a finetune job (default: the newest in `data`)"
    )
    toolformer: fields.ModelName | None = Field(
        None, description="Toolformer: the folder of a model or of a finetune job (default: the newest in `data`)"
    )
    arms: Annotated[list[Annotated[str, fields.OneOf(_arms)]], fields.Listed] = Field(
        default_factory=list,
        description="Arms to run: base, base+tools, cc, toolformer, toolformer-trigger, toolformer-disabled (default: "
        "those whose models are there; toolformer-trigger only with `trigger`)",
    )
    k: Annotated[
        list[Annotated[int, WithJsonSchema({"type": "integer", "minimum": 0})]],
        fields.WholeNumbers,
        fields.Option(note="; separated by commas, e.g. 0,1,3,10"),
    ] = Field(
        [10],
        description="For arms with tools: a call starts where ' [' is among the k most likely tokens (paper: 10); 0: "
        "no calls",
    )
    trigger: Annotated[
        Trigger,
        fields.Option(note=". It is the arm toolformer-trigger that uses it; named alone, the arm takes 'fitted'"),
    ] = ""
    max_calls: int = Field(
        1,
        gt=0,
        description="For arms with tools: calls per item (paper: 1); later ones may use earlier responses, so that "
        "each step of a word problem can have its own",
    )
    limit: int | None = Field(None, gt=0, description="Ask at most this many items (default: all)")
    seed: int | None = Field(
        None,
        description="Choose the items of `limit` by this seed (default: the first ones; of a folder's questions, a "
        "sample by seed 0); all arms get the same",
    )
    tools: Annotated[fields.Tools, fields.TOOLS] = Field(
        list(TOOL_NAMES), description="Tools that are offered; those that a task leaves out never are"
    )
    tool: Annotated[fields.References, fields.TOOLS] = []  # noqa: RUF012 - pydantic copies it
    passages: Annotated[fields.Passages, fields.TOOLS] = None
    qa_reader: Annotated[fields.QAReader, fields.TOOLS] = None
    translator: Annotated[fields.TranslatorModel, fields.TOOLS] = None
    max_new_tokens: int | None = Field(None, gt=0, description="Tokens of text per item (default: by the task's rule)")
    shard_items: Annotated[int, fields.RUNNING] = Field(
        64, gt=0, description="Items per shard, the unit of work and of restart; of texts an eighth of that"
    )
    workers: Annotated[fields.Workers, fields.RUNNING] = 1
    gpus: Annotated[fields.Gpus, fields.RUNNING] = None
