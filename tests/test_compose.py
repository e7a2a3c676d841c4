"""docker-compose.yml and the Dockerfiles: valid, closed to the outside, and each command one that its program takes."""

import fnmatch
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from dataclasses import replace
from inspect import getsource
from pathlib import Path

import click
import pytest
import sqlalchemy as sa
import uvicorn
import yaml

from flows.runtime import prefect_app
from ops.deployments import POOLS
from serving.origins import refusal
from tasks import settings
from tests.support import postgres
from tests.support.compose import FILE, UnsetError, read, services
from tests.support.natively import Native
from viewer import server as viewer_server

ROOT = FILE.parent
DOCKERFILES = ("Dockerfile", "mlflow/Dockerfile")
SECRETS = {f"{name}_PASSWORD": f"of {name}: @/?#'" for name in ("POSTGRES", "PREFECT", "MLFLOW", "CATALOG")}
ALL = services(SECRETS)
TEXT = FILE.read_text(encoding="utf-8")
EXAMPLE = (ROOT / ".env.example").read_text(encoding="utf-8")


def program(name: str) -> str:
    found = shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def of_schema(file: Path) -> subprocess.CompletedProcess[str]:
    command = [program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", str(file)]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("filled_in", [False, True])
def test_the_file_meets_the_schema_of_compose(filled_in: bool, tmp_path: Path) -> None:
    file = tmp_path / "compose.yml"
    file.write_text(yaml.safe_dump(read(SECRETS)) if filled_in else TEXT)
    told = of_schema(file)
    assert told.returncode == 0, told.stdout
    file.write_text(TEXT.replace("depends_on:", "depend_on:", 1))
    assert of_schema(file).returncode == 1


@pytest.mark.parametrize("file", DOCKERFILES)
def test_the_linter_finds_nothing_in_a_dockerfile(file: str) -> None:
    told = subprocess.run([program("hadolint"), "--no-color", str(ROOT / file)], capture_output=True, text=True)
    assert (told.returncode, told.stdout) == (0, "")


@pytest.mark.parametrize("name", SECRETS)
def test_without_a_password_nothing_starts_and_the_message_says_what_to_do(name: str) -> None:
    with pytest.raises(UnsetError, match=rf"{name}: set it in \.env, see \.env\.example"):
        services({**SECRETS, name: ""})


def test_the_example_names_every_variable_and_holds_no_secret() -> None:
    asked = set(re.findall(r"(?<!\$)\$\{(\w+)", TEXT))
    passed_on = {
        key for told in yaml.safe_load(TEXT)["services"].values() for key, v in told["environment"].items() if v is None
    }
    named = dict(re.findall(r"^#?([A-Z][A-Z0-9_]*)=(.*)$", EXAMPLE, re.MULTILINE))
    assert set(named) == asked | passed_on
    assert {name for name, value in named.items() if re.search(rf"^{name}=", EXAMPLE, re.MULTILINE)} == set(SECRETS)
    assert not any(named[name] for name in SECRETS)
    for name, default in re.findall(r"\$\{(\w+):-([^}]*)\}", TEXT):  # what is told as the default is the default
        assert named[name] == ("" if name.endswith("_PUBLIC_URL") else default)


def test_the_document_tells_of_every_service() -> None:
    document = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*) \|", document.partition("| service |")[2].partition("\n\n")[0], re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`([a-z-]+)`", row)) == sorted(ALL)


def test_a_service_knows_no_password_but_its_own() -> None:
    known = {
        name: {secret for secret, value in SECRETS.items() if value in service.environment.values()}
        for name, service in ALL.items()
    }
    ours = ("dask-worker", "dask-worker-gpu", "setup", "toolformer", "viewer", "worker-cpu", "worker-gpu")
    assert known == {
        "database": {"POSTGRES_PASSWORD"},
        "setup-database": set(SECRETS),
        "prefect": {"PREFECT_PASSWORD"},
        "mlflow": {"MLFLOW_PASSWORD"},
        "scheduler": set(),
        **{name: {"CATALOG_PASSWORD"} for name in ours},
    }
    for service in ALL.values():  # neither a command nor a URL shows one
        shown = (*service.command, *(value for key, value in service.environment.items() if "PASSWORD" not in key))
        assert not [secret for secret in SECRETS.values() for text in shown if secret in text]


def test_only_pages_are_published_and_on_loopback() -> None:
    published = {name: service.ports for name, service in ALL.items() if service.ports}
    assert published == {
        "prefect": ("127.0.0.1:4200:4200",),
        "mlflow": ("127.0.0.1:5000:5000",),
        "viewer": ("127.0.0.1:8001:8001",),
    }
    moved = services({**SECRETS, "BIND": "10.0.0.5", "MLFLOW_PORT": "5001"})
    assert moved["mlflow"].ports == ("10.0.0.5:5001:5000",)
    for told in read(SECRETS)["services"].values():
        assert not told.keys() & {"network_mode", "privileged", "pid", "ipc", "devices"}
        assert told["security_opt"] == ["no-new-privileges:true"]


def test_what_lasts_is_checked_and_started_again_and_what_is_waited_for_can_come() -> None:
    told = read(SECRETS)["services"]
    for name, service in ALL.items():
        assert told[name]["restart"] == ("unless-stopped" if service.lasting else "no")
        assert bool(service.health) == service.lasting
        for need, condition in service.needs.items():
            expected = "service_healthy" if ALL[need].lasting else "service_completed_successfully"
            assert (need, condition) == (need, expected)
            assert set(ALL[need].profiles) <= set(service.profiles)  # else Compose would not start it


def test_services_are_known_by_names_that_there_are_at_ports_that_they_listen_on() -> None:
    listening = {"database": {"5432"}, "prefect": {"4200"}, "mlflow": {"5000"}, "scheduler": {"8786"}}
    for name, ports in listening.items():
        said = " ".join((*ALL[name].command, *ALL[name].environment.values()))
        assert ports == {port for port in ports if re.search(rf"\b{port}\b", said)}
    for service in ALL.values():
        for text in (*service.command, *service.environment.values()):
            for host, port in re.findall(r"(?:://|@)([a-z][a-z-]*):(\d+)", text):
                assert port in listening[host], f"{service.name}: {text}"


def test_no_service_and_no_health_check_is_asked_by_way_of_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    for name, service in services({**SECRETS, "NO_PROXY": "s3.intern.example"}).items():
        if service.image.startswith("postgres"):
            continue  # neither asks anybody by HTTP
        for variable in ("no_proxy", "NO_PROXY"):
            monkeypatch.setenv(variable, service.environment[variable])
        for host in ("127.0.0.1", "localhost", "prefect", "mlflow", "s3.intern.example"):
            assert urllib.request.proxy_bypass_environment(host), f"{name}: {host}"  # type: ignore[attr-defined]
        assert not urllib.request.proxy_bypass_environment("huggingface.co")  # type: ignore[attr-defined]


def test_the_viewer_takes_the_command_and_answers_to_its_public_name(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[object, ...]] = []

    class Server:
        def __init__(self, *how: object) -> None:
            served.append(how)

        def serve_until_ended(self) -> None:
            pass

    monkeypatch.setattr(viewer_server, "ViewerServer", Server)
    told = services({**SECRETS, "VIEWER_PUBLIC_URL": "https://view.example", "TOOLFORMER_DATA": "s3://bucket/c4"})
    for service, data in ((ALL["viewer"], "/data/main"), (told["viewer"], "s3://bucket/c4")):
        assert service.command[:3] == ("python", "-m", "viewer.server")
        monkeypatch.setattr(sys, "argv", list(service.command[2:]))
        viewer_server.main()
        assert served.pop()[:3] == (data, "0.0.0.0", 8001)
        assert service.environment["TOOLFORMER_DATA"] == data
    monkeypatch.setenv("TOOLFORMER_ALLOWED_ORIGINS", told["viewer"].environment["TOOLFORMER_ALLOWED_ORIGINS"])
    request = {"headers": [(b"host", b"view.example"), (b"origin", b"https://view.example")]}
    assert refusal(request, origins=settings.allowed_origins()) is None
    assert told["worker-cpu"].environment["TOOLFORMER_VIEWER"] == "https://view.example"
    assert ALL["worker-cpu"].environment["TOOLFORMER_VIEWER"] == "http://127.0.0.1:8001"


@pytest.mark.parametrize("name", [name for name in ALL if ALL[name].command[0] == "dask"])
def test_dask_takes_the_command(name: str) -> None:
    from distributed.cli import dask_scheduler, dask_worker

    _, which, *words = ALL[name].command
    command = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}[which]
    told = command.make_context(which, list(words)).params
    assert told["preload_argv"] == ()  # where words would be that belong to no option
    assert told.get("resources") == ("GPU=1" if "gpu" in name else None)
    with pytest.raises(click.NoSuchOption):
        command.make_context(which, [*words, "--threads"])


@pytest.mark.parametrize("name", [name for name in ALL if ALL[name].command[0] == "prefect"])
def test_prefect_takes_the_command(name: str) -> None:
    from prefect.cli._app import _app  # the whole command line; what is public about it runs it as well

    _, bound, unused, _ = _app.parse_known_args(ALL[name].command[1:])
    assert not unused
    assert bound.arguments["work_pool_name"] == name.removeprefix("worker-")
    assert bound.arguments["work_pool_name"] in POOLS
    assert bound.arguments["worker_type"] == "process"
    assert bound.arguments.get("limit") == (1 if name == "worker-gpu" else None)


def test_prefects_server_refuses_foreign_pages_and_names_and_knows_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ALL["prefect"].command[:3] == ("python", "-m", "flows.runtime.prefect_app")
    served: list[dict[str, object]] = []
    monkeypatch.setattr(prefect_app, "create_app", lambda final: None)
    monkeypatch.setattr(uvicorn, "run", lambda app, **how: served.append(how))
    prefect_app.main(ALL["prefect"].command[3:])
    assert (served[0]["host"], served[0]["port"]) == ("0.0.0.0", 4200)
    for public, names in (("", ["prefect"]), ("https://toolformer.example", ["prefect", "toolformer.example"])):
        told = services({**SECRETS, "PREFECT_PUBLIC_URL": public})
        for name in ("TOOLFORMER_ALLOWED_HOSTS", "TOOLFORMER_ALLOWED_ORIGINS"):
            monkeypatch.setenv(name, told["prefect"].environment[name])
        allowed = {"hosts": settings.allowed_hosts(), "origins": settings.allowed_origins()}
        api = told["worker-cpu"].environment["PREFECT_API_URL"].removeprefix("http://").removesuffix("/api")
        for host in (api, *names, "127.0.0.1:4200"):
            assert refusal({"headers": [(b"host", host.encode())]}, **allowed) is None
        assert refusal({"headers": [(b"host", b"evil.example")]}, **allowed) is not None


@pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType:UserWarning")  # MLflow's own
def test_mlflow_takes_its_options_from_the_environment_and_answers_to_the_name_that_others_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mlflow.cli import server
    from mlflow.server.security_utils import is_allowed_host_header

    service = ALL["mlflow"]
    allowed = service.environment["MLFLOW_SERVER_ALLOWED_HOSTS"].split(",")
    known = ALL["worker-cpu"].environment["MLFLOW_TRACKING_URI"].removeprefix("http://")
    hosts = (known, "localhost:5001", "elsewhere.example:5000")  # the second is a browser's, through another port
    assert [is_allowed_host_header(allowed, host) for host in hosts] == [True, True, False]
    assert service.command == ("mlflow", "server")
    for key, value in service.environment.items():
        monkeypatch.setenv(key, value)
    told = server.make_context("server", []).params
    names = ("host", "port", "workers", "artifacts_destination", "serve_artifacts", "backend_store_uri")
    database = "postgresql+psycopg://mlflow@database:5432/mlflow"
    assert [told[name] for name in names] == ["0.0.0.0", 5000, "2", "/artifacts", True, database]
    of_uvicorn = uvicorn.main.make_context("uvicorn", ["app", *shlex.split(told["uvicorn_opts"])]).params
    assert of_uvicorn["timeout_worker_healthcheck"] == 120


def test_what_ours_is_told_is_something_that_we_read() -> None:
    known = {
        *re.findall("TOOLFORMER_[A-Z_]+", getsource(settings)),
        *(f"TOOLFORMER_{n.upper()}_S" for n in settings._SECONDS),
    }
    told = {key for key in ALL["worker-cpu"].environment if key.startswith("TOOLFORMER_")}
    assert told <= known
    assert {"TOOLFORMER_CATALOG", "TOOLFORMER_DATA", "TOOLFORMER_RUNNER"} <= told


@pytest.mark.parametrize("name", ["dask-worker", "dask-worker-gpu", "setup", "toolformer", "worker-cpu", "worker-gpu"])
def test_whoever_works_on_data_sees_the_same_data(name: str) -> None:
    service = ALL[name]
    assert service.volumes == {"/data": "data", "/inputs": "./inputs"}
    for key in ("TOOLFORMER_DATA", "HF_HOME"):
        assert service.environment[key].startswith("/data/")
    told = services({**SECRETS, "TOOLFORMER_DATA": "s3://bucket/c4", "DATA_VOLUME": "/srv/data"})[name]
    assert (told.environment["TOOLFORMER_DATA"], told.volumes["/data"]) == ("s3://bucket/c4", "/srv/data")


def instructions(file: str) -> list[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", (ROOT / file).read_text(encoding="utf-8"))
    return [(word, rest) for word, rest in re.findall(r"^([A-Z]+) +(.*)$", text, re.MULTILINE)]


@pytest.mark.parametrize("file", DOCKERFILES)
def test_what_an_image_copies_is_there_and_reaches_the_builder(file: str) -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    let_in = {line[1:] for line in ignored if line.startswith("!")}
    copied = [
        word.removeprefix("./")
        for what, rest in instructions(file)
        if what == "COPY" and "--from" not in rest
        for word in rest.split()[:-1]
    ]
    assert copied
    for path in copied:
        assert (ROOT / path).exists()
        assert path in let_in
    if file == "Dockerfile":
        wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
        assert {*wheel["packages"], *(Path(file).parts[0] for file in wheel["force-include"])} <= set(copied)
        assert let_in <= set(copied)  # nothing else goes there, .env least of all
    assert fnmatch.fnmatch(".env", ignored[1])


@pytest.mark.parametrize("file", DOCKERFILES)
def test_an_image_is_pinned_and_does_not_run_as_root(file: str) -> None:
    told = instructions(file)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    for base in {rest.split()[0] for what, rest in told if what == "FROM"}:
        found = re.fullmatch(r"python:3\.(\d+)-slim", base)
        assert found is not None
        assert int(found[1]) >= int(wanted.removeprefix(">=3."))
    for _, rest in told:
        assert "pip install" not in rest or "--constraint" in rest
    assert [rest for what, rest in told if what == "USER"] == ["10001"]


def test_each_part_has_a_database_of_its_own_and_a_new_password_counts_from_the_next_start() -> None:
    def asked(role: str, password: str, database: str) -> str:
        """Log in by TCP and say who one is."""
        url = sa.URL.create("postgresql+psycopg", role, password, "127.0.0.1", native.port("database", 5432), database)
        ((user,),) = postgres.asked(url.render_as_string(hide_password=False), "SELECT current_user")
        return str(user)

    with Native(ALL) as native:
        native.up("setup-database")
        for role in ("prefect", "mlflow", "catalog"):
            assert asked(role, SECRETS[f"{role.upper()}_PASSWORD"], role) == role
        with pytest.raises(sa.exc.OperationalError, match="password authentication failed"):
            asked("mlflow", SECRETS["CATALOG_PASSWORD"], "mlflow")
        with pytest.raises(sa.exc.OperationalError, match="permission denied for database"):
            asked("mlflow", SECRETS["MLFLOW_PASSWORD"], "catalog")
        [once] = native.copies("setup-database")
        native.run(replace(once, service=services({**SECRETS, "MLFLOW_PASSWORD": "another"})["setup-database"]))
        assert asked("mlflow", "another", "mlflow") == "mlflow"
        with pytest.raises(sa.exc.OperationalError, match="password authentication failed"):
            asked("mlflow", SECRETS["MLFLOW_PASSWORD"], "mlflow")
