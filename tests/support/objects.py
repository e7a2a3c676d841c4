"""A local S3 server (moto's, on loopback), once a session; `bucket` is the URL of a new, empty bucket."""

import logging
import uuid
from collections.abc import Iterator

import pyarrow.fs as pafs
import pytest


@pytest.fixture(scope="session")
def object_server() -> Iterator[str]:
    """host:port of a server that nothing but these tests uses."""
    server_module = pytest.importorskip("moto.server")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def bucket(object_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")  # or Arrow looks for one, on the network
    return new_bucket(object_server)


def new_bucket(server: str) -> str:
    """Make an empty bucket at a server; return the URL of a folder in it."""
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    query = f"endpoint_override={server}&scheme=http&region=us-east-1"
    filesystem, _ = pafs.FileSystem.from_uri(f"s3://{name}?{query}&allow_bucket_creation=true")
    filesystem.create_dir(name)
    return f"s3://{name}/c4?{query}"
