"""The options of `plan` that ask for the cost of a run by numbers, besides those of `build`."""

from __future__ import annotations

from typing import Annotated

import typer

from toolformer_core.errors import UsageError

_PANEL = "What a run of that size costs"

Documents = Annotated[
    float | None,
    typer.Option(
        help="Plan by numbers: what a run on so many documents costs, e.g. 1e9. --corpus is then not needed, and is "
        "not read",
        rich_help_panel=_PANEL,
    ),
]
Gpu = Annotated[
    str,
    typer.Option(
        help="Card on which the model runs: a100, a100-40gb, h100, h100-pcie, h200, b200, l40s, l4, mi300x, or another "
        "with --assume tflops=..,bandwidth=.. (default: none, the model runs on --workers cores)",
        rich_help_panel=_PANEL,
    ),
]
GpuCount = Annotated[int, typer.Option(help="How many of them", rich_help_panel=_PANEL)]
GpuPrice = Annotated[
    float | None,
    typer.Option(help="What an hour of one card costs, in your currency, e.g. 2.5", rich_help_panel=_PANEL),
]
SampleFrom = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="DATA",
        help="Data folder or URL of a finished build, whose counters are the basis (default: --data, if one was "
        "finished there; else the paper's figures and ours)",
        rich_help_panel=_PANEL,
    ),
]
Assume = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Another value for a line of the printed assumptions; may be repeated, or several with commas",
        rich_help_panel=_PANEL,
    ),
]


def check_cost_options(
    gpu: str, gpu_count: int, gpu_price: float | None, sample: str | None, assume: list[str] | None
) -> None:
    """Check that nothing that only a plan by numbers uses was given without `--documents`.

    Raises:
        UsageError: it was.
    """
    given = {
        "--gpu": gpu,
        "--gpu-count": gpu_count != 1,
        "--gpu-price": gpu_price is not None,
        "--from": sample is not None,
        "--assume": assume,
    }
    if names := [name for name, value in given.items() if value]:
        raise UsageError(f"{', '.join(names)}: for a plan by numbers; say how many documents, e.g. --documents 1e9")
