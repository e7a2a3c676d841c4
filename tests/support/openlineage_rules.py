"""What the OpenLineage specification (2-0-2) and our own facets ask of an event, as JSON Schema.

The specification's schema is in no package, so its rules for run events are written down here. Its facets are held to
the client's classes, ours to `flows/lineage/facets.json`.
"""

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker

from flows.lineage import events as lineage_events

_URI = {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9+.-]*:[^ ]+$"}
_FACETS = {"type": "object", "additionalProperties": {"$ref": "#/$defs/Facet"}}
_NAMED = {"namespace": {"type": "string", "minLength": 1}, "name": {"type": "string", "minLength": 1}}
_RULES: dict[str, Any] = {
    "$defs": {
        "Facet": {
            "type": "object",
            "properties": {"_producer": _URI, "_schemaURL": _URI},
            "required": ["_producer", "_schemaURL"],
        },
        "Dataset": {
            "type": "object",
            "properties": {**_NAMED, "facets": _FACETS, "inputFacets": _FACETS, "outputFacets": _FACETS},
            "required": ["namespace", "name"],
        },
    },
    "type": "object",
    "properties": {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "eventTime": {"type": "string", "format": "date-time"},
        "producer": _URI,
        "schemaURL": {"const": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"},
        "run": {
            "type": "object",
            "properties": {"runId": {"type": "string", "format": "uuid"}, "facets": _FACETS},
            "required": ["runId"],
        },
        "job": {"type": "object", "properties": {**_NAMED, "facets": _FACETS}, "required": ["namespace", "name"]},
        "inputs": {"type": "array", "items": {"$ref": "#/$defs/Dataset"}},
        "outputs": {"type": "array", "items": {"$ref": "#/$defs/Dataset"}},
    },
    "required": ["eventTime", "producer", "schemaURL", "run", "job"],
    "additionalProperties": False,
}
_OWN = json.loads((Path(lineage_events.__file__).parent / "facets.json").read_text(encoding="utf-8"))


def check_event(event: dict[str, Any]) -> None:
    """Check an event as it is sent; a ValidationError names the rule that is broken."""
    Draft202012Validator(_RULES, format_checker=FormatChecker(["date-time", "uuid"])).validate(event)
    assert {"date-time", "uuid"} <= FormatChecker.checkers.keys()  # else the formats would go unchecked
    facets = [event["run"]["facets"], event["job"]["facets"]]
    for dataset in (*event.get("inputs", ()), *event.get("outputs", ())):
        facets += [dataset.get(name, {}) for name in ("facets", "inputFacets", "outputFacets")]
    for name, facet in (item for one in facets for item in one.items()):
        if facet["_schemaURL"].startswith(_OWN["$id"]):
            assert name.startswith("toolformer_")  # so the specification asks of facets that it does not have
            schema = {**_OWN, "$ref": facet["_schemaURL"].partition(_OWN["$id"])[2]}
            Draft202012Validator(schema).validate(facet)
        else:
            assert facet["_schemaURL"].startswith("https://openlineage.io/spec/facets/")
