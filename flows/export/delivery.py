"""An export as a form asks for it, from the options to the files and the hub. Flow and command call it.

It knows no Prefect.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from flows.export.earlier import written_earlier
from flows.export.hub import look_at, push
from flows.export.parameters import ExportParameters
from flows.export.run import ExportResult, OnProgress, Places, export_to
from warehouse.store import Store

__all__ = ["deliver"]


def deliver(parameters: ExportParameters, on_progress: OnProgress | None = None) -> ExportResult:
    """Export a dataset as a form asks for it, and push it to the hub if the form names a repository.

    What an earlier call wrote is pushed as it is, so a push that failed is repeated by the same call.

    Args:
        parameters: the form.
        on_progress: called with the examples read so far, and how many there are.

    Raises:
        UsageError, CorruptDataError: see `export_to` and `look_at`.
        PushError: the hub could not be reached, or refused; what was written stays.
    """
    settings = parameters.settings()
    store, out = Store(parameters.data), Path(parameters.out)
    if parameters.push is None:
        return export_to(store, parameters.dataset, out, settings, on_progress)
    repository = look_at(parameters.push, Places.of(out), public=parameters.public, replace=parameters.replace)
    result = written_earlier(store, parameters.dataset, out, settings) or export_to(
        store, parameters.dataset, out, settings, on_progress
    )
    return replace(result, pushed=push(repository, result, public=parameters.public))
