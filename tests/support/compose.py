"""docker-compose.yml as Compose would read it: variables filled in, environment files merged. It runs nothing."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from dotenv import dotenv_values

FILE = Path(__file__).parents[2] / "docker-compose.yml"
_VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?:(?P<how>:?[-?])(?P<word>[^{}]*))?\}")


class UnsetError(Exception):
    """A variable is not set that has to be; the message is the file's own."""


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """Return a parsed file with `${NAME}`, `${NAME:-default}` and `${NAME:?message}` filled in."""
    if isinstance(value, dict):
        return {key: interpolated(inner, variables) for key, inner in value.items()}
    if isinstance(value, list):
        return [interpolated(inner, variables) for inner in value]
    if not isinstance(value, str):
        return value

    def one(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        given = variables.get(found["name"])
        how, word = found["how"] or "-", found["word"] or ""
        if given or (given is not None and ":" not in how):
            return given
        if "?" in how:
            raise UnsetError(f"{found['name']}: {word}")
        return word

    return _VARIABLE.sub(one, value)


def read(variables: Mapping[str, str]) -> dict[str, Any]:
    return dict(interpolated(yaml.safe_load(FILE.read_text(encoding="utf-8")), variables))


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    image: str
    command: tuple[str, ...]  # with the entrypoint, where the file names one
    environment: Mapping[str, str]
    health: tuple[str, ...]  # (): it has no check
    needs: Mapping[str, str]  # service -> condition
    volumes: Mapping[str, str]  # path in the container -> volume or path here
    workdir: str
    lasting: bool  # it is started again when it ends
    replicas: int
    profiles: tuple[str, ...]
    ports: tuple[str, ...]


def services(variables: Mapping[str, str]) -> dict[str, Service]:
    """Return the services as Compose would start them; an UnsetError names a variable that has to be set and is not."""
    return {name: _service(name, told, variables) for name, told in read(variables)["services"].items()}


def _service(name: str, told: dict[str, Any], variables: Mapping[str, str]) -> Service:
    environment: dict[str, str] = {}
    for more in told.get("env_file", ()):
        environment |= {key: value or "" for key, value in dotenv_values(FILE.parent / more).items()}
    for key, value in told.get("environment", {}).items():
        if value is not None:
            environment[key] = str(value)
        elif key in variables:  # without a value it is passed on, if it is set
            environment[key] = variables[key]
    kind, *health = told.get("healthcheck", {}).get("test", ["CMD"])
    assert kind == "CMD", f"{name}: a health check that needs a shell"
    mounts = [volume.split(":") for volume in told.get("volumes", ())]
    return Service(
        name=name,
        image=told["image"],
        command=(*told.get("entrypoint", ()), *told["command"]),
        environment=environment,
        health=tuple(health),
        needs={need: how["condition"] for need, how in told.get("depends_on", {}).items()},
        volumes={inside: source for source, inside, *_ in mounts},
        workdir=told.get("working_dir", "/tmp"),
        lasting=told["restart"] != "no",
        replicas=int(told.get("deploy", {}).get("replicas", 1)),
        profiles=tuple(told.get("profiles", ())),
        ports=tuple(told.get("ports", ())),
    )
