"""The work pools: what their workers run for whom, and what nobody may ask of them.

A flow run must not choose what a worker executes. So the pools' base job templates take no `command`, `env` or
`working_dir` from a run or a deployment. That closes the forms, not the API: whoever reaches it may change a pool or
make a deployment of their own, and so have code run. What runs in the pools is not known here.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Any

__all__ = ["POOLS", "closed", "make_pool", "template"]

POOLS = {
    "cpu": "Annotates corpora: workers on machines that see the data folder",
    "gpu": "Trains and evaluates models: a worker on each GPU node, or one where jobs are sent from; start it with "
    "--limit 1",
}
_FIXED = ("command", "env", "working_dir")  # with one of them a run could execute anything
_TRACKING = "MLFLOW_TRACKING_URI"


def template(tracking: str = "") -> dict[str, Any]:
    """Return the base job template of a new pool.

    Args:
        tracking: MLFLOW_TRACKING_URI of all runs; "": each worker's own.
    """
    from prefect.workers.process import ProcessWorker

    return closed(ProcessWorker.get_default_base_job_template(), tracking)


def closed(template: dict[str, Any], tracking: str = "") -> dict[str, Any]:
    """Return a process pool's base job template in which no run chooses its command, environment or folder.

    What a template had as their defaults becomes their fixed value, and job variables it does not name are refused.

    Args:
        template: of the pool.
        tracking: MLFLOW_TRACKING_URI of all runs; "": each worker's own.
    """
    out = copy.deepcopy(template)
    job, schema = out.setdefault("job_configuration", {}), out.setdefault("variables", {"type": "object"})
    properties = schema.setdefault("properties", {})
    defaults = {name: properties.pop(name, {}).get("default") for name in _FIXED}
    for name in _FIXED:
        chosen = re.search(rf"{{{{\s*({'|'.join(_FIXED)})\b", json.dumps(job.get(name)))
        job[name] = defaults[name] if chosen else job.get(name)
    if isinstance(job["env"] or {}, dict):  # else it is a reference of the pool's owner to a variable or block
        job["env"] = {key: value for key, value in (job["env"] or {}).items() if key != _TRACKING}
        job["env"] |= {_TRACKING: tracking} if tracking else {}
    for name in _FIXED:
        if not job[name]:
            del job[name]  # even an empty `env` would be merged with a run's
    if "required" in schema:
        schema["required"] = [name for name in schema["required"] if name not in _FIXED]
    schema["additionalProperties"] = False
    return out


def make_pool(client: Any, name: str, description: str, tracking: str) -> None:
    """Make a process pool; of one that is there, close the template and leave the rest as it is.

    Args:
        client: of Prefect's API, synchronous.
        name: of the pool.
        description: as the UI shows it, of a new one.
        tracking: see `template`.
    """
    from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
    from prefect.exceptions import ObjectAlreadyExists

    new = template(tracking)
    try:
        client.create_work_pool(
            WorkPoolCreate(name=name, type="process", description=description, base_job_template=new)
        )
    except ObjectAlreadyExists:
        pool = client.read_work_pool(name)
        wanted = closed(pool.base_job_template, tracking) if pool.base_job_template else new
        if pool.type == "process" and wanted != pool.base_job_template:
            client.update_work_pool(name, WorkPoolUpdate(base_job_template=wanted))
