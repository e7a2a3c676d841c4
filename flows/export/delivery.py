"""An export as a form asks for it, from the options to the files. Flow and command call it; it knows no Prefect."""

from __future__ import annotations

from pathlib import Path

from flows.export.parameters import ExportParameters
from flows.export.run import ExportResult, OnProgress, export_to
from warehouse.store import Store

__all__ = ["deliver"]


def deliver(parameters: ExportParameters, on_progress: OnProgress | None = None) -> ExportResult:
    """Export a dataset as a form asks for it.

    Args:
        parameters: the form.
        on_progress: called with the examples read so far, and how many there are.

    Raises:
        UsageError, CorruptDataError: see `export_to`.
    """
    settings = parameters.settings()
    store = Store(parameters.data)
    return export_to(store, parameters.dataset, Path(parameters.out), settings, on_progress)
