"""The parameters of `finetune` and `fit-trigger`, declared once: forms, the commands' options, a table of docs."""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from flows.forms.fields import FORM, RUNNING, DataFolder, ModelName, OneOf, Option, Version

_RECIPE = Option("Recipe")


def _profiles() -> Iterable[str]:
    from flows.finetune.profiles import PROFILES

    return ["auto", *PROFILES]


class FinetuneParameters(BaseModel):
    """C* to checkpoint."""

    model_config = FORM

    dataset: Version = Field(
        "cstar", description="Dataset to train on: name, or name@version; the newest version by default"
    )
    data: DataFolder = Field("toolformer-data", description="Data folder or URL in which the dataset was built")
    model: ModelName = Field(
        "embedded",
        description="Model to train: 'embedded', a folder written by save_pretrained, a GGUF file, or a hub name",
    )
    arm: Literal["toolformer", "cc"] = Field(
        "toolformer", description="toolformer: C*; cc: the same documents without their calls (M + CC)"
    )
    profile: Annotated[str, OneOf(_profiles, "^/.+[.]json$")] = Field(
        "auto", description="Where to train: auto, cpu, bf16, core, gpu, lora, or the path of a JSON file of your own"
    )
    processes: int = Field(0, ge=0, description="Processes per node; 0: as the profile says")
    steps: Annotated[int, _RECIPE] = Field(2000, gt=0, description="Optimiser steps (paper: up to 2,000)")
    batch: Annotated[int, _RECIPE] = Field(128, gt=0, description="Texts per step, over all processes (paper: 128)")
    learning_rate: Annotated[float, _RECIPE] = Field(
        1e-5, gt=0, description="Learning rate of AdamW after the warmup (paper: 1e-5)"
    )
    warmup: Annotated[float, _RECIPE] = Field(
        0.1, ge=0, le=1, description="Share of the steps in which the learning rate rises (paper: 0.1)"
    )
    sequence_length: Annotated[int, _RECIPE] = Field(
        1024, gt=1, description="Tokens per text; longer texts are cut (paper: 1,024)"
    )
    evaluate_every: Annotated[int, _RECIPE] = Field(
        500,
        gt=0,
        description="Steps between two measurements of the dev perplexity, each with a checkpoint (paper: 500)",
    )
    dev_documents: Annotated[int, _RECIPE] = Field(
        1000, ge=0, description="Documents kept from training, at most a tenth of the corpus (paper: 1,000)"
    )
    keep: Annotated[int, _RECIPE] = Field(
        2, gt=0, description="Resumable checkpoints kept; the best model is kept besides"
    )
    retries: Annotated[int, RUNNING] = Field(
        1, ge=0, description="Further attempts, from the last checkpoint, if a process or a node dies"
    )
    seed: Annotated[int, _RECIPE] = Field(
        0, description="Seed of the order of texts, of dropout and of the choice of dev documents"
    )


class FitTriggerParameters(BaseModel):
    """A finetuned model to the thresholds on p(' [') above which it calls."""

    model_config = FORM

    model: ModelName = Field(
        "", description="Folder of a training of C*, or of its model (default: the newest training in `data`)"
    )
    data: DataFolder = Field("toolformer-data", description="Data folder or URL in which the dataset was built")
    k: int = Field(10, ge=1, description="k of decoding: thresholds are fitted to openings at this k (paper: 10)")
    needless: float = Field(0.05, ge=0, le=1, description="Largest share of a tool's needless openings that remain")
    lost: float = Field(
        0.02, ge=0, le=1, description="Largest share of a tool's calls that are lost; it takes precedence"
    )
    min_calls: int = Field(5, ge=1, description="Calls that a tool needs for a threshold")
