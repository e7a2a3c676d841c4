"""The work pools: their base job templates, in which no flow run chooses what a worker executes.

That protects the forms, not the API: who reaches the API can change a pool or create a deployment, and have code run.
"""

import copy
import json
import re
from typing import Any

POOLS = {
    "cpu": "Annotates corpora: workers on machines that see the data folder",
    "gpu": "Trains and evaluates models: a worker on each GPU node, or one on the machine that submits jobs; start it "
    "with --limit 1",
}
_FIXED = ("command", "env", "working_dir")  # each would let a run execute anything
_TRACKING = "MLFLOW_TRACKING_URI"


def pool_template(tracking: str = "") -> dict[str, Any]:
    """Return the base job template of a new pool; `tracking` is as of `close_template`."""
    from prefect.workers.process import ProcessWorker

    return close_template(ProcessWorker.get_default_base_job_template(), tracking)


def close_template(template: dict[str, Any], tracking: str) -> dict[str, Any]:
    """Return a process pool's base job template changed so that no run chooses its command, environment or folder.

    All runs have `tracking` as MLFLOW_TRACKING_URI; "": each worker's own.
    """
    closed = copy.deepcopy(template)
    job, schema = closed.setdefault("job_configuration", {}), closed.setdefault("variables", {"type": "object"})
    properties = schema.setdefault("properties", {})
    defaults = {name: properties.pop(name, {}).get("default") for name in _FIXED}
    for name in _FIXED:
        by_run = re.search(rf"{{{{\s*({'|'.join(_FIXED)})\b", json.dumps(job.get(name)))
        job[name] = defaults[name] if by_run else job.get(name)
    if isinstance(job["env"] or {}, dict):  # else the pool's owner refers to a variable or block
        job["env"] = {key: value for key, value in (job["env"] or {}).items() if key != _TRACKING}
        job["env"] |= {_TRACKING: tracking} if tracking else {}
    for name in _FIXED:
        if not job[name]:
            del job[name]  # even an empty `env` would be merged with the run's
    if "required" in schema:
        schema["required"] = [name for name in schema["required"] if name not in _FIXED]
    schema["additionalProperties"] = False
    return closed


def make_pool(client: Any, name: str, description: str, tracking: str) -> None:
    """Create a process pool, or close the template of an existing one and leave the rest of it as it is."""
    from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
    from prefect.exceptions import ObjectAlreadyExists

    new = pool_template(tracking)
    try:
        client.create_work_pool(
            WorkPoolCreate(name=name, type="process", description=description, base_job_template=new)
        )
    except ObjectAlreadyExists:
        pool = client.read_work_pool(name)
        wanted = close_template(pool.base_job_template, tracking) if pool.base_job_template else new
        if pool.type == "process" and wanted != pool.base_job_template:
            client.update_work_pool(name, WorkPoolUpdate(base_job_template=wanted))
