"""The options of a plan by numbers besides those of the build, declared once; there is no form for it."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from flows.forms.fields import Option, as_list

_COST = Option("What a run of that size costs")


class CostOptions(BaseModel):
    """How large the run is, on what it runs, and what replaces the numbers that the plan rests on."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    documents: Annotated[float | None, _COST] = Field(
        None, ge=1, description="Plan by numbers: what a run on so many documents costs, e.g. 1e9; reads no --corpus"
    )
    gpu: Annotated[str, _COST] = Field(
        "", description="Card, e.g. h100, or any with --assume tflops=..,bandwidth=.. (default: none, --workers cores)"
    )
    gpu_count: Annotated[int, _COST] = Field(1, ge=1, description="How many of them")
    gpu_price: Annotated[float | None, _COST] = Field(None, ge=0, description="Of a card-hour, in your currency")
    from_: Annotated[str | None, _COST] = Field(
        None, description="Finished build to measure from, a folder or URL (default: --data, else the paper's figures)"
    )
    assume: Annotated[list[str], _COST, Option(convert=as_list, repeated=True)] = Field(
        [], description="NAME=VALUE in place of a printed assumption; may be repeated"
    )
