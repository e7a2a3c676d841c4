"""An export as a form asks for it, from the options to the files and the hub; it knows no Prefect."""

import datetime as dt
import logging
from dataclasses import replace
from pathlib import Path

from flows.export.hub import MANIFEST, README, Repository, look_at, push
from flows.export.parameters import ExportParameters
from flows.export.run import ExportResult, OnProgress, Places, export_to, written_earlier
from flows.lineage.send import send_run
from warehouse.errors import WarehouseError
from warehouse.records import Export, write_export
from warehouse.store import Store

_log = logging.getLogger(__name__)


def deliver(parameters: ExportParameters, on_progress: OnProgress | None = None) -> ExportResult:
    """Export a dataset as a form asks for it, record that, and push it to the hub if the form names a repository.

    What an earlier call wrote is pushed as it is, so a push that failed is repeated by the same call. `on_progress`
    takes the examples read so far, and how many there are.

    Raises:
        UsageError, CorruptDataError: see `export_to` and `look_at`.
        PushError: the hub could not be reached, or refused; what was written stays.
    """
    store, settings, out = Store(parameters.data), parameters.settings(), Path(parameters.out)
    repository: Repository | None = None
    result: ExportResult | None = None
    if parameters.push is not None:
        if not parameters.dry_run:
            names = (out.name, Places.of(out).dev.name)
            repository = look_at(parameters.push, names, public=parameters.public, replace=parameters.replace)
        result = written_earlier(store, parameters.dataset, out, settings)
    result = result or export_to(store, parameters.dataset, out, settings, on_progress)
    if repository is not None:
        message = f"Export of {result.dataset} as {result.manifest['format']}"
        result = replace(result, pushed=push(repository, uploads_of(result), message))
    _record(store, result)
    return result


def uploads_of(result: ExportResult) -> dict[str, Path]:
    """Return the files of an export by the paths that they have in a repository of the hub."""
    folder, places = result.out.parent, Places.of(result.out)
    names = (entry["name"] for entry in result.manifest["files"] if entry["name"] != places.card.name)
    return {**{name: folder / name for name in names}, README: places.card, MANIFEST: places.manifest}


def _record(store: Store, result: ExportResult) -> None:
    manifest, pushed = result.manifest, result.pushed
    export = Export(
        dataset=result.dataset.replace("@", "/", 1),
        format=manifest["format"],
        folder=str(result.out.absolute().parent),
        files=tuple(manifest["files"]),
        program=manifest["program"],
        created=dt.datetime.now(dt.UTC).isoformat(timespec="microseconds"),
        hub=pushed.url.removesuffix(f"/datasets/{pushed.repository}") if pushed else None,
        repository=pushed.repository if pushed else None,
        revision=pushed.commit if pushed else None,
    )
    try:
        send_run(store, write_export(store, export))
    except (WarehouseError, OSError) as exc:
        _log.warning("this export is not recorded in the data folder: %s", exc)
