"""What a chat row says of the tools of a dataset: their schemas, from the tools themselves.

The run that made a dataset names its tools, and they are built again as it named them. Descriptions do not depend on
where a tool finds its data, so the paper's five are built with what is embedded. A tool that cannot be built here (its
file is gone, its server does not answer) is described by its name in calls alone, and the export says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from flows.build_dataset.record import BuildRecord
from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import ToolformerError
from toolformer_core.export.schemas import ToolSchema, schema_of
from toolformer_core.tools.base import Tool
from warehouse.commits import Dataset
from warehouse.store import Store


def schemas_of(store: Store, dataset: Dataset) -> tuple[dict[str, ToolSchema], list[str]]:
    """Return the schemas of a dataset's tools by their names in calls, and notes on those that are only named."""
    record = BuildRecord.of_run(store, dataset.run_id)
    names = {**TOOL_NAMES, **record.tool_names}
    keys = list(dict.fromkeys((*dataset.thresholds, *dataset.counts)))
    wanted = [*(key for key in keys if key in TOOL_NAMES), *(name for name in record.tools if name not in TOOL_NAMES)]
    problems: list[str] = []
    built = dict(_built(wanted, problems))
    schemas, notes = {}, []
    for key in keys:
        name = names.get(key, key)
        if key in built and built[key].name == name:
            schemas[name] = schema_of(built[key])
        else:
            schemas[name] = ToolSchema(name)
            why = f" ({'; '.join(problems)})" if problems else ""
            notes.append(f"the schema of {name} has no description, because the tool could not be built here{why}")
    return schemas, notes


def _built(names: list[str], problems: list[str]) -> Iterator[tuple[str, Tool]]:
    from toolformer_core.tools.build import build_tools  # imports the libraries of all tools

    for name in names:
        try:
            yield from build_tools([name]).items()
        except ToolformerError as exc:
            problems.append(str(exc))
