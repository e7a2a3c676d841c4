"""The one place that reads the program's environment variables (docs/operating.md, docs/using.md).

URLs are stored and shown without credentials; `public_*` moves these into the environment.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from toolformer_core.endpoints import SECRET_NAME, Credentials, parse_endpoint
from toolformer_core.errors import UsageError
from toolformer_core.lm.reference import ModelRef
from warehouse.files.paths import database_problem, sqlite_url

_MODEL_KEY = "TOOLFORMER_MODEL_KEY"
_QA_KEY = "TOOLFORMER_QA_KEY"
# A password may hold any character, as SQLAlchemy takes it too; digits in front of / ? or # are a port.
_PASSWORD = re.compile(r"([A-Za-z][\w+.-]*://)([^/?#\s:@]*):(?!\d+(?:[/?#]|$))(\S*)@")
_QUERY_SECRET = re.compile(rf"([?&][^=&#\s]*(?:{SECRET_NAME})[^=&#\s]*=)[^&#\s]+", re.IGNORECASE)
_SECONDS = {"wait": 600.0, "refresh": 20.0, "sweep": 3600.0, "lease": 60.0}
_HOST = r"[a-z0-9._-]+|\[[0-9a-f:.]+\]"  # a name, or an address


def data_folder(given: str | None = None) -> str:
    """Return the data folder: `given`, else $TOOLFORMER_DATA, else ./toolformer-data; or raise a UsageError."""
    return checked_data(_public_data(given or os.environ.get("TOOLFORMER_DATA") or "toolformer-data"))


def checked_data(data: str) -> str:
    """Return a data folder as it is, or raise a UsageError if no database can lie in it (for a URL: in this folder)."""
    if problem := database_problem(Path.cwd() if "://" in data else Path(data).absolute()):
        raise UsageError(problem)
    return data


def shown_url(url: str) -> str:
    """Return a URL without its password and without query values that may be keys, to be shown or stored."""
    return _QUERY_SECRET.sub(r"\1***", _PASSWORD.sub(r"\1", url))


def _public_data(url: str) -> str:
    """Return a data folder's URL without credentials; those for S3 go into the environment, unless it has some."""
    match = _PASSWORD.match(url)
    if match is None:
        return url
    scheme, user, password = match.groups()
    if scheme != "s3://":
        variable = f"FSSPEC_{scheme.removesuffix('://').upper()}_PASSWORD"
        raise UsageError(f"{shown_url(url)} holds a password, which every run would store: set {variable} instead")
    if "AWS_ACCESS_KEY_ID" not in os.environ:
        os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"] = unquote(user), unquote(password)
    return scheme + url[match.end() :]


def model_key_variable(model: ModelRef) -> str:
    """Return the variable for the credentials of one model server, e.g. TOOLFORMER_MODEL_KEY_GPU_EXAMPLE_8000."""
    return _variable_of(_MODEL_KEY, model.url)


def qa_key_variable(url: str) -> str:
    """Return the variable that holds the credentials of one QA server, e.g. TOOLFORMER_QA_KEY_HOST_8000."""
    return _variable_of(_QA_KEY, url)


def _variable_of(prefix: str, url: str) -> str:
    return f"{prefix}_{re.sub('[^A-Z0-9]+', '_', urlsplit(url).netloc.upper()).strip('_')}"


def model_credentials(model: str | ModelRef) -> Credentials | None:
    """Return the credentials for a model's server from the environment; None if there are none."""
    return _credentials(_MODEL_KEY, ModelRef.of(model).url)


def qa_credentials(reader: str | None) -> Credentials | None:
    """Return the credentials for the server that reads passages for QA from the environment; None if there are none."""
    endpoint = parse_endpoint(reader or "")
    return None if endpoint is None else _credentials(_QA_KEY, endpoint.url)


def _credentials(prefix: str, url: str) -> Credentials | None:
    text = os.environ.get(_variable_of(prefix, url), "").strip() or os.environ.get(prefix, "").strip()
    return Credentials.parse(text) if url and text else None


def public_qa_reader(reader: str) -> tuple[str, str]:
    """Return a QA reader without credentials, which go into the environment, and the variable ("" without any)."""
    endpoint = parse_endpoint(reader)
    if endpoint is None or not endpoint.credentials:
        return reader, ""
    variable = qa_key_variable(endpoint.url)
    os.environ[variable] = endpoint.credentials.text()
    return f"{endpoint.url}#{endpoint.model}", variable


def public_model(name: str) -> tuple[str, str]:
    """Return a model's name without credentials, which go into the environment, and the variable ("" without any)."""
    named = ModelRef.of(name)
    if not named.credentials:
        return name, ""
    variable = model_key_variable(named)
    os.environ[variable] = named.credentials.text()
    return named.name, variable


def api_key(given: str | None = None) -> str | None:
    """Return the key that clients of a server must send: `given`, else $TOOLFORMER_API_KEY, else None."""
    return os.environ.get("TOOLFORMER_API_KEY") or None if given is None else given


def allowed_hosts() -> tuple[str, ...]:
    """Return the names besides loopback under which servers answer, in lower case, or raise a UsageError."""
    return _listed("TOOLFORMER_ALLOWED_HOSTS", _HOST, "prefect,10.0.0.5")


def allowed_origins() -> tuple[str, ...]:
    """Return the addresses besides its own whose pages may use Prefect's server, or raise a UsageError."""
    return _listed("TOOLFORMER_ALLOWED_ORIGINS", rf"https?://({_HOST})(:\d+)?(/.*)?", "https://prefect.example")


def _listed(variable: str, form: str, example: str) -> tuple[str, ...]:
    parts = [part.strip().rstrip("/").lower() for part in os.environ.get(variable, "").split(",")]
    for part in filter(None, parts):
        if not re.fullmatch(form, part):
            raise UsageError(f"{variable}: {part!r} cannot be allowed; write e.g. {example}")
    return tuple(filter(None, parts))


def viewer_url() -> str | None:
    """Return the viewer's address, to which other pages link; None: it is not known. A UsageError: it is none."""
    given = os.environ.get("TOOLFORMER_VIEWER", "").strip().rstrip("/")
    if given and not re.fullmatch(rf"https?://({_HOST})(:\d+)?(/[^\s?#]*)?", given.lower()):
        raise UsageError(f"TOOLFORMER_VIEWER is {shown_url(given)!r}: write e.g. http://127.0.0.1:8001")
    return given or None


def runner_named(given: str | None = None) -> str:
    """Return the runner of a flow's tasks: `given`, else $TOOLFORMER_RUNNER, else `threads`; or raise a UsageError."""
    name = given or os.environ.get("TOOLFORMER_RUNNER") or "threads"
    if name not in ("threads", "dask") and "://" not in name:
        source = "--runner" if given else "TOOLFORMER_RUNNER"
        raise UsageError(f"{source}: {name!r} is not threads, dask, or a scheduler's address (tcp://host:8786)")
    return name


def seconds(name: str) -> float:
    """Return `wait`, `refresh`, `sweep` or `lease`: $TOOLFORMER_<NAME>_S, else its default; or raise a UsageError."""
    variable = f"TOOLFORMER_{name.upper()}_S"
    given = os.environ.get(variable) or str(_SECONDS[name])
    with suppress(ValueError):
        if (value := float(given)) >= 0.0:
            return value
    raise UsageError(f"{variable} is {given!r}: give a number of seconds, e.g. {_SECONDS[name]:g}")


def visible_gpus() -> tuple[str, ...]:
    """Return the GPUs that this process may use, as named in $CUDA_VISIBLE_DEVICES; none without CUDA."""
    import torch

    count = torch.cuda.device_count()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(n) for n in range(count)] if named is None else [name.strip() for name in named.split(",")]
    return tuple(names[:count])  # CUDA ignores all names from the first unknown one on


def lineage_target() -> str:
    """Return where flows send OpenLineage events, a file or a server's address: $TOOLFORMER_LINEAGE; "": nowhere."""
    return os.environ.get("TOOLFORMER_LINEAGE", "").strip()


def lineage_key() -> str:
    """Return the key of the server that takes OpenLineage events: $OPENLINEAGE_API_KEY, as its clients have it."""
    return os.environ.get("OPENLINEAGE_API_KEY", "")


def shared_catalog() -> str | None:
    """Return the URL of the catalog that flows on several machines share, or None."""
    return os.environ.get("TOOLFORMER_CATALOG") or None


def cache_folder() -> Path:
    """Return the folder for files that may be deleted: `toolformer` in $XDG_CACHE_HOME, else in ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolformer"


def tracking_uri(data: str) -> str:
    """Return where runs are tracked: $MLFLOW_TRACKING_URI, else mlflow.db in a local data folder; or a UsageError."""
    if named := os.environ.get("MLFLOW_TRACKING_URI"):
        return _without_login(named)
    if "://" in data:
        raise UsageError(f"no MLflow database can lie at {data}: set MLFLOW_TRACKING_URI to a server or database")
    return sqlite_url(Path(data) / "mlflow.db")


def _without_login(uri: str) -> str:
    """Return the address of an MLflow server without its user and password, which MLflow takes from the environment."""
    parts = urlsplit(uri)
    login, _, place = parts.netloc.rpartition("@")
    if parts.scheme not in ("http", "https") or not login:  # the URL of a database needs its password
        return uri
    user, _, password = login.partition(":")
    os.environ.setdefault("MLFLOW_TRACKING_USERNAME", unquote(user))
    os.environ.setdefault("MLFLOW_TRACKING_PASSWORD", unquote(password))
    os.environ["MLFLOW_TRACKING_URI"] = urlunsplit(parts._replace(netloc=place))
    return os.environ["MLFLOW_TRACKING_URI"]
