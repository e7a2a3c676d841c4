"""Steps as OpenLineage events, made with the classes of the official client (the extra `lineage`).

The same step gives the same events: START, and if it has ended COMPLETE, FAIL or ABORT. What OpenLineage has no facet
for stands in two of our own, whose schema is `facets.json`.
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
    """Return the events of steps, `openlineage.client.event_v2.RunEvent`, in order; a UsageError: no client."""
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
        "inputs": [_dataset(InputDataset, "inputStatistics", read, one) for one in step.inputs],
    }
    yield RunEvent(eventType=RunState.START, eventTime=step.started, **begun)
    if step.ended and step.state in _ENDS:
        outputs = [_dataset(OutputDataset, "outputStatistics", written, one) for one in step.outputs]
        yield RunEvent(eventType=RunState(_ENDS[step.state]), eventTime=step.ended, outputs=outputs, **begun)


def _run_facets(step: Step) -> dict[str, Any]:
    from openlineage.client.facet_v2 import RunFacet, parent_run, processing_engine_run

    engine = processing_engine_run.ProcessingEngineRunFacet(step.program or "unknown", _PROGRAM, producer=PRODUCER)
    own = _own(RunFacet, "ToolformerRunFacet", {"kind": step.kind, "run": step.run, **step.facts})
    facets = {RUN_FACET: own, "processing_engine": engine}
    if step.parent is not None:
        run, job = parent_run.Run(run_id(*step.parent)), parent_run.Job(namespace=JOBS, name=step.parent[0])
        facets["parent"] = parent_run.ParentRunFacet(run=run, job=job, producer=PRODUCER)
    return facets


def _job_facets(step: Step) -> dict[str, Any]:
    from openlineage.client.facet_v2 import documentation_job, job_type_job

    kind = job_type_job.JobTypeJobFacet("BATCH", "TOOLFORMER", jobType=step.kind, producer=PRODUCER)
    about = documentation_job.DocumentationJobFacet(description=step.about, producer=PRODUCER)
    return {"jobType": kind, "documentation": about}


def _dataset(kind: Any, statistics: str, facet: Any, data: Data) -> Any:
    from openlineage.client import facet_v2 as v2

    facets: dict[str, Any] = {
        "datasetType": v2.dataset_type_dataset.DatasetTypeDatasetFacet(data.kind, producer=PRODUCER),
        "dataSource": v2.datasource_dataset.DatasourceDatasetFacet(name=data.namespace, producer=PRODUCER),
    }
    if data.version:
        facets["version"] = v2.dataset_version_dataset.DatasetVersionDatasetFacet(data.version, producer=PRODUCER)
    if data.columns:
        fields = [v2.schema_dataset.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in data.columns]
        facets["schema"] = v2.schema_dataset.SchemaDatasetFacet(fields=fields, producer=PRODUCER)
    if data.facts:
        facets[DATASET_FACET] = _own(v2.DatasetFacet, "ToolformerDatasetFacet", data.facts)
    counted = {}
    if data.rows is not None:
        counted = {statistics: facet(rowCount=data.rows, size=data.bytes, fileCount=data.files, producer=PRODUCER)}
    return kind(data.namespace, data.name, counted, facets=facets)


def _own(base: Any, name: str, facts: Mapping[str, Any]) -> Any:
    """Return a facet of our own; values that are not JSON's become so, and null is left out, as the client does."""
    values = json.loads(json.dumps(dict(facts), default=str))
    facet = base(producer=PRODUCER).with_additional_properties(**values)
    facet._schemaURL = f"{FACETS}#/$defs/{name}"
    return facet
