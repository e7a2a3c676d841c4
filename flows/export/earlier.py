"""An export that was written earlier: found whole, it need not be written again before it is pushed.

The manifest says what was asked for and the SHA-256 of each file. The same export gives the same bytes, so files that
fit the manifest are what the export would write. A push that failed can thus be repeated by the same command.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flows.export.card import asked_of, sha256_of
from flows.export.find import find_dataset
from flows.export.run import ExportResult, Places
from flows.export.settings import ExportSettings
from toolformer_core.errors import UsageError
from toolformer_core.lm.load import load_tokenizer
from warehouse.store import Store


def written_earlier(store: Store, name: str, out: Path, settings: ExportSettings) -> ExportResult | None:
    """Return the export that lies at `out`; None if nothing lies there.

    Args:
        store, name, out, settings: see `export_to`.

    Raises:
        UsageError: something else lies there, or the dataset does not exist.
    """
    if not out.exists():
        return None
    dataset = find_dataset(store, name)
    places = Places.of(out)
    tokenizer = load_tokenizer(settings.tokenizer) if settings.tokenizer else None
    manifest = _manifest(places.manifest)
    asked = asked_of(dataset, settings, tokenizer)
    if manifest is None or any(manifest.get(key) != value for key, value in asked.items()) or not _whole(out, manifest):
        raise UsageError(f"{out} exists already, and is not this export; name another, or remove it first")
    paths = (places.train, places.dev, places.manifest, places.card)
    return ExportResult(
        dataset=dataset.label,
        out=out,
        files=tuple(path for path in paths if path.exists()),
        examples=manifest["examples"]["train"] + manifest["examples"]["dev"],
        dev=manifest["examples"]["dev"],
        left_out=manifest["examples"]["left_out"],
        counts=manifest["counts"],
        notes=tuple(manifest["notes"]),
        manifest=manifest,
    )


def _manifest(path: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) else None


def _whole(out: Path, manifest: dict[str, Any]) -> bool:
    """Return whether every file of a manifest of ours is what the manifest says."""
    try:
        return all(sha256_of(out.parent / file["name"]) == file["sha256"] for file in manifest["files"])
    except OSError:
        return False
