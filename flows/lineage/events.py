"""Steps as OpenLineage events, made with the classes of the official client (the extra `lineage`).

A step gives two events: START, and COMPLETE, FAIL or ABORT; one that goes on gives START alone. Ids of runs are UUIDs
derived from the names of run and job, and times are those of the records: the same step gives the same events, so
a receiver of both has them once. What OpenLineage has no facet for stands in two of our own, whose schema is
`facets.json`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID, uuid5

from flows.lineage.names import JOBS
from flows.lineage.steps import Data, Step
from toolformer_core.errors import UsageError
from toolformer_core.extras import how_to_install, is_installed

__all__ = ["DATASET_FACET", "FACETS", "PRODUCER", "RUN_FACET", "as_json", "events_of", "run_id"]

PRODUCER = "urn:toolformer:platform"
FACETS = "urn:toolformer:lineage-facets:1"  # `$id` of facets.json
RUN_FACET, DATASET_FACET = "toolformer_run", "toolformer_dataset"
_NAMESPACE = UUID("6f2d0a2e-54c0-5d0c-9f0e-3b6c2f1f7a11")  # of the ids of runs; any, but always the same
_ENDS = {"completed": "COMPLETE", "failed": "FAIL", "cancelled": "ABORT"}
_PROGRAM = "toolformer"  # the name of the engine, which DataHub shows as the platform of the jobs


def run_id(job: str, run: str) -> str:
    """Return the id of a job's run."""
    return str(uuid5(_NAMESPACE, f"{job} {run}"))


def events_of(steps: Iterable[Step]) -> list[Any]:
    """Return the events of steps, in order: `openlineage.client.event_v2.RunEvent`.

    Raises:
        UsageError: the client is not installed.
    """
    if not is_installed("openlineage"):
        raise UsageError(f"OpenLineage events need the package openlineage-python; run: {how_to_install('lineage')}")
    return [event for step in steps for event in _events(step)]


def as_json(event: Any) -> str:
    """Return an event as it is sent, one line."""
    from openlineage.client.serde import Serde

    return str(Serde.to_json(event))


def _events(step: Step) -> Iterator[Any]:
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import input_statistics_input_dataset, output_statistics_output_dataset

    read = input_statistics_input_dataset.InputStatisticsInputDatasetFacet
    written = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
    begun = {
        "run": Run(runId=run_id(step.job, step.run), facets=_run_facets(step)),
        "job": Job(namespace=JOBS, name=step.job, facets=_job_facets(step)),
        "producer": PRODUCER,
        "inputs": [
            InputDataset(one.namespace, one.name, _statistics("inputStatistics", read, one), facets=_facets(one))
            for one in step.inputs
        ],
    }
    yield RunEvent(eventType=RunState.START, eventTime=step.started, **begun)
    if step.ended and step.state in _ENDS:
        outputs = [
            OutputDataset(one.namespace, one.name, _statistics("outputStatistics", written, one), facets=_facets(one))
            for one in step.outputs
        ]
        yield RunEvent(eventType=RunState(_ENDS[step.state]), eventTime=step.ended, outputs=outputs, **begun)


def _run_facets(step: Step) -> dict[str, Any]:
    from openlineage.client.facet_v2 import RunFacet, parent_run, processing_engine_run

    engine = processing_engine_run.ProcessingEngineRunFacet(step.program or "unknown", _PROGRAM, producer=PRODUCER)
    own = _own(RunFacet, "ToolformerRunFacet", {"kind": step.kind, "run": step.run, **step.facts})
    if step.parent is None:
        return {RUN_FACET: own, "processing_engine": engine}
    run, job = parent_run.Run(run_id(*step.parent)), parent_run.Job(namespace=JOBS, name=step.parent[0])
    parent = parent_run.ParentRunFacet(run=run, job=job, producer=PRODUCER)
    return {RUN_FACET: own, "processing_engine": engine, "parent": parent}


def _job_facets(step: Step) -> dict[str, Any]:
    from openlineage.client.facet_v2 import documentation_job, job_type_job

    kind = job_type_job.JobTypeJobFacet("BATCH", "TOOLFORMER", jobType=step.kind, producer=PRODUCER)
    about = documentation_job.DocumentationJobFacet(description=step.about, producer=PRODUCER)
    return {"jobType": kind, "documentation": about}


def _statistics(name: str, facet: Any, data: Data) -> dict[str, Any]:
    if data.rows is None:
        return {}
    return {name: facet(rowCount=data.rows, size=data.bytes, fileCount=data.files, producer=PRODUCER)}


def _facets(data: Data) -> dict[str, Any]:
    from openlineage.client.facet_v2 import (
        DatasetFacet,
        dataset_type_dataset,
        dataset_version_dataset,
        datasource_dataset,
        schema_dataset,
    )

    facets: dict[str, Any] = {
        "datasetType": dataset_type_dataset.DatasetTypeDatasetFacet(data.kind, producer=PRODUCER),
        "dataSource": datasource_dataset.DatasourceDatasetFacet(name=data.namespace, producer=PRODUCER),
    }
    if data.version:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(data.version, producer=PRODUCER)
    if data.columns:
        fields = [schema_dataset.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in data.columns]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields, producer=PRODUCER)
    if data.facts:
        facets[DATASET_FACET] = _own(DatasetFacet, "ToolformerDatasetFacet", data.facts)
    return facets


def _own(base: Any, name: str, facts: Mapping[str, Any]) -> Any:
    """Return a facet of our own; values that are not JSON's become so, and null is left out, as the client does."""
    values = json.loads(json.dumps(dict(facts), default=str))
    facet = base(producer=PRODUCER).with_additional_properties(**values)
    facet._schemaURL = f"{FACETS}#/$defs/{name}"
    return facet
