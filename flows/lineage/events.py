"""Steps as OpenLineage events, made with the classes of the official client (the extra `lineage`).

A step gives two events: START, and COMPLETE, FAIL or ABORT; one that goes on gives START alone. Ids of runs are UUIDs
derived from the names of run and job, and times are those of the records: the same step gives the same events, so
a receiver of both has them once. What OpenLineage has no facet for stands in two of our own, whose schema is
`facets.json`.
"""

import json
from collections.abc import Iterable, Mapping
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
    from openlineage.client.serde import Serde

    return str(Serde.to_json(event))


def _events(step: Step) -> Iterable[Any]:
    from openlineage.client.event_v2 import RunEvent, RunState

    begun = {"run": _run(step), "job": _job(step), "producer": PRODUCER}
    inputs = [_input(data) for data in step.inputs]
    yield RunEvent(eventType=RunState.START, eventTime=step.started, inputs=inputs, **begun)
    if step.ended and step.state in _ENDS:
        outputs = [_output(data) for data in step.outputs]
        state = RunState(_ENDS[step.state])
        yield RunEvent(eventType=state, eventTime=step.ended, inputs=inputs, outputs=outputs, **begun)


def _run(step: Step) -> Any:
    from openlineage.client.event_v2 import Run
    from openlineage.client.facet_v2 import RunFacet, parent_run, processing_engine_run

    facets: dict[str, Any] = {
        RUN_FACET: _own(RunFacet, "ToolformerRunFacet", {"kind": step.kind, "run": step.run, **step.facts}),
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version=step.program or "unknown", name=_PROGRAM, producer=PRODUCER
        ),
    }
    if step.parent is not None:
        job, run = step.parent
        facets["parent"] = parent_run.ParentRunFacet(
            run=parent_run.Run(runId=run_id(job, run)),
            job=parent_run.Job(namespace=JOBS, name=job),
            producer=PRODUCER,
        )
    return Run(runId=run_id(step.job, step.run), facets=facets)


def _job(step: Step) -> Any:
    from openlineage.client.event_v2 import Job
    from openlineage.client.facet_v2 import documentation_job, job_type_job

    facets = {
        "jobType": job_type_job.JobTypeJobFacet(
            processingType="BATCH", integration="TOOLFORMER", jobType=step.kind, producer=PRODUCER
        ),
        "documentation": documentation_job.DocumentationJobFacet(description=step.about, producer=PRODUCER),
    }
    return Job(namespace=JOBS, name=step.job, facets=facets)


def _input(data: Data) -> Any:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset

    facet = input_statistics_input_dataset.InputStatisticsInputDatasetFacet
    statistics = _statistics("inputStatistics", facet, data)
    return InputDataset(namespace=data.namespace, name=data.name, facets=_facets(data), inputFacets=statistics)


def _output(data: Data) -> Any:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
    statistics = _statistics("outputStatistics", facet, data)
    return OutputDataset(namespace=data.namespace, name=data.name, facets=_facets(data), outputFacets=statistics)


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
        "datasetType": dataset_type_dataset.DatasetTypeDatasetFacet(datasetType=data.kind, producer=PRODUCER),
        "dataSource": datasource_dataset.DatasourceDatasetFacet(name=data.namespace, producer=PRODUCER),
    }
    if data.version:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
            datasetVersion=data.version, producer=PRODUCER
        )
    if data.columns:
        field = schema_dataset.SchemaDatasetFacetFields
        columns = [field(name=name, type=kind) for name, kind in data.columns]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=columns, producer=PRODUCER)
    if data.facts:
        facets[DATASET_FACET] = _own(DatasetFacet, "ToolformerDatasetFacet", data.facts)
    return facets


def _own(base: Any, name: str, facts: Mapping[str, Any]) -> Any:
    """Return a facet of our own; values that are not JSON's become so, and null is left out, as the client does."""
    values = json.loads(json.dumps(dict(facts), default=str))
    facet = base(producer=PRODUCER).with_additional_properties(**values)
    facet._schemaURL = f"{FACETS}#/$defs/{name}"
    return facet
