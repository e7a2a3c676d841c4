"""Manifests meet the schemas of the newest two Kubernetes versions; no API server has seen them."""

import json

import pytest

from tests.tasks.launch.launch_cases import GOLDEN

VERSIONS = ("1.36", "1.37")


@pytest.mark.parametrize("file", ["kubernetes_job.json", "kubernetes_cpu.json"])
def test_every_field_is_one_of_kubernetes(file: str) -> None:
    schemas = pytest.importorskip("kubernetes_validate", reason="not installed: kubernetes-validate")
    manifest = json.loads((GOLDEN / file).read_text())
    assert [schemas.validate(manifest, version, strict=True) for version in VERSIONS] == list(VERSIONS)
    with pytest.raises(schemas.ValidationError):
        schemas.validate({**manifest, "spec": {**manifest["spec"], "replica": 1}}, VERSIONS[0], strict=True)
