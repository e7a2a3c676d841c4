"""A model's URL with credentials: the server is told them, and nothing that stays holds them."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL
from tiny import tiny_lm

from cli.terminal import without_credentials
from flows.build_dataset.parameters import BuildParameters
from flows.evaluate.parameters import EvaluateParameters
from ops.deployments import DEPLOYMENTS, DeploymentOptions, form_schema
from tasks.environment import environment
from tasks.settings import data_folder, model_credentials, public_qa_reader, qa_credentials, shown_url, tracking_uri
from tests.support.commands import Run
from tests.support.fake_vllm import FakeVllm, fake_vllm
from toolformer_core.endpoints import Credentials
from toolformer_core.errors import UsageError
from warehouse.store import Store

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")

PASSWORD, KEY = "op3nSesame", "K3yOfTheDoor"
SECRETS = (PASSWORD, KEY, "dXNlcjpvcDNuU2VzYW1l")  # and base64 of user:op3nSesame
REFUSED = (
    "vllm+http://user:pw@host/v1#m",
    "vllm+http://host/v1?key=K#m",
    "vllm+http://user:p/w@host/v1#m",
    "remote+http://user:pw@host/v1#m",
    "remote+http://host/v1?key=K#m",
    "VLLM+http://user:pw@host/v1#m",  # near misses: no server is meant that is asked, and the login is one all the same
    "http://user:pw@host/v1#m",
    " vllm+http://user:pw@host/v1#m",
)


@pytest.fixture
def model(tmp_path: Path) -> str:
    hf_model = tiny_lm("gpt2", context=1024).hf_model  # a prompt takes about 600
    hf_model.model.save_pretrained(tmp_path / "model")
    hf_model.tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


@pytest.fixture
def server(model: str) -> Iterator[FakeVllm]:
    with fake_vllm(model, tiny_lm("gpt2", context=1024)) as server:
        server.wanted = (f"key={KEY}", "Basic dXNlcjpvcDNuU2VzYW1l")
        yield server


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"text": "Of 1400 men, 400 (or 29 %) and 3 in 7 passed in 2019."}) + "\n")
    return path


def holding_a_secret(folder: Path) -> list[str]:
    """Return the files below a folder in which a secret stands, databases and their journals included."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if any(secret.encode() in path.read_bytes() for secret in SECRETS)]


def test_what_is_secret_in_a_models_url_stays_nowhere(
    prefect_server: None, empty_database: Path, run: Run, server: FakeVllm, model: str, corpus: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    shutil.copyfile(empty_database, data / "mlflow.db")  # so that the build enters itself there
    url = server.url.replace("://", f"://user:{PASSWORD}@")
    words = ["--corpus", corpus, "--data", data, "--tools", "calculator", "--top-k", 1, "--samples", 1]
    words += ["--json"]
    said = run("build", *words, "--model", f"vllm+{url}?key={KEY}#{model}")
    variable = f"TOOLFORMER_MODEL_KEY_127_0_0_1_{server.at.rpartition(':')[2]}"
    assert said.code == 0, said.err
    assert len(server.asked) >= 2  # the check and a draw: it was told the credentials
    assert variable in said.err
    assert said.err.count("TOOLFORMER_MODEL_KEY") == 1
    store = Store(data)
    named = f"vllm+{server.url}#{model}"
    assert {store.runs()[0].model, store.runs()[0].parameters["model"], store.datasets()[0].model} == {named}
    assert not [secret for secret in SECRETS if secret in said.out + said.err]
    assert holding_a_secret(data) == []
    prefect_db = Path(PREFECT_API_DATABASE_CONNECTION_URL.value().partition(":///")[2])
    assert named.encode() in b"".join(path.read_bytes() for path in prefect_db.parent.glob(prefect_db.name + "*"))
    assert holding_a_secret(prefect_db.parent) == []
    assert named.encode() in (data / "mlflow.db").read_bytes()

    # The same server with another key is the same model, and a key in the environment is enough: all is found done.
    again = run("plan", *words, "--model", named)
    assert (again.code, json.loads(again.out)["nothing_to_do"]) == (0, True)


def test_a_refusal_repeats_no_secret(
    prefect_server: None, run: Run, server: FakeVllm, model: str, corpus: Path, tmp_path: Path
) -> None:
    server.wanted = ("", None)  # type: ignore[assignment]  # its refusal repeats the address with the key
    words = ["--corpus", corpus, "--data", tmp_path / "data", "--tools", "calculator", "--top-k", 1, "--samples", 1]
    said = run("build", *words, "--model", f"vllm+{server.url}?key={KEY}#{model}")
    assert said.code == 2
    assert "401 who are you, /v1/completions?***?" in said.err
    assert "TOOLFORMER_MODEL_KEY" in said.err.splitlines()[-1]
    assert not [secret for secret in SECRETS if secret in said.out + said.err]
    assert holding_a_secret(tmp_path / "data") == []


@pytest.mark.parametrize("url", REFUSED)
def test_a_form_refuses_credentials_and_does_not_repeat_them(url: str) -> None:
    secret = "user" if "user" in url else "key=K"
    for field, kind in (("model", BuildParameters), ("model", EvaluateParameters), ("cc", EvaluateParameters)):
        with pytest.raises(ValueError, match=r"vllm|remote\+") as caught:
            kind.model_validate({"corpus": "c.jsonl", "task": "svamp", field: url})
        assert secret not in str(caught.value)
        told = str(caught.value)
        assert "TOOLFORMER_MODEL_KEY_HOST" in told or "the environment" in told
    deployed = form_schema(DEPLOYMENTS[0])["definitions"]["BuildParameters"]["properties"]["model"]
    import jsonschema

    with pytest.raises(jsonschema.ValidationError):  # so the API refuses it, before it is in a database
        jsonschema.validate(url, deployed)
    jsonschema.validate("vllm+http://host:8000/v1#/models/x", deployed)
    jsonschema.validate("remote+http://host:8000/v1#70b?tokenizer=/models/coded", deployed)


def test_a_data_folders_keys_go_into_the_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    assert data_folder("s3://ID:sec%2Fret@bucket/c4?scheme=http") == "s3://bucket/c4?scheme=http"
    told = environment()
    assert (told["AWS_ACCESS_KEY_ID"], told["AWS_SECRET_ACCESS_KEY"]) == ("ID", "sec/ret")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert data_folder("s3://ID:sec/r?e#t@bucket/c4") == "s3://bucket/c4"  # not escaped, as secrets of S3 often are not
    assert environment()["AWS_SECRET_ACCESS_KEY"] == "sec/r?e#t"
    assert data_folder("hdfs://namenode:8020/c4@2") == "hdfs://namenode:8020/c4@2"  # a port
    with pytest.raises(UsageError, match="FSSPEC_SFTP_PASSWORD") as caught:
        data_folder("sftp://me:secret@host/x")
    assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="s3://bucket") as refused:
        BuildParameters(corpus="c.jsonl", data="s3://ID:secret@bucket/c4")
    assert "secret" not in str(refused.value)


def test_mlflows_password_is_not_part_of_its_address(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_USERNAME", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@mlflow.example/x")
    assert tracking_uri("data") == "https://mlflow.example/x"
    assert environment()["MLFLOW_TRACKING_PASSWORD"] == "secret"
    for secret in ("secret", "s/cret", "s?c#r@t"):
        assert shown_url(f"postgresql://me:{secret}@db/mlflow") == "postgresql://db/mlflow"
    with pytest.raises(UsageError, match="MLFLOW_TRACKING_PASSWORD") as caught:
        DeploymentOptions("data", tracking="http://me:secret@mlflow.example")
    assert "secret" not in str(caught.value)


def test_a_servers_own_key_comes_before_the_one_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLFORMER_MODEL_KEY", "all")
    assert model_credentials("vllm+http://gpu.example:8000/v1#m") == Credentials("all")
    monkeypatch.setenv("TOOLFORMER_MODEL_KEY_GPU_EXAMPLE_8000", "me:pw@\n")
    assert model_credentials("vllm+http://gpu.example:8000/v1#m") == Credentials(login="me:pw")
    assert model_credentials("embedded") is None


def test_the_server_that_reads_for_qa_has_keys_of_its_own(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = "https://qa.example:8443/v1#m"
    monkeypatch.setenv("TOOLFORMER_MODEL_KEY", "a model's")
    monkeypatch.setenv("TOOLFORMER_QA_KEY_QA_EXAMPLE_8443", "x")  # so that it is restored, whatever the test does
    monkeypatch.delenv("TOOLFORMER_QA_KEY_QA_EXAMPLE_8443")
    assert qa_credentials(reader) is None
    monkeypatch.setenv("TOOLFORMER_QA_KEY", "all")
    assert qa_credentials(reader) == Credentials("all")
    assert [qa_credentials(name) for name in (None, "embedded", "deepset/roberta-base-squad2")] == [None] * 3
    variable = "TOOLFORMER_QA_KEY_QA_EXAMPLE_8443"
    assert public_qa_reader("https://me:pw@qa.example:8443/v1?v=1#m") == ("https://qa.example:8443/v1#m", variable)
    assert qa_credentials(reader) == Credentials(login="me:pw", query="v=1")
    assert public_qa_reader(reader) == (reader, "")
    assert public_qa_reader("a folder") == ("a folder", "")


@pytest.mark.parametrize("url", ["https://me:pw@host/v1#m", "https://host/v1?key=K1#m", "https://me:p/w@host/v1#m"])
def test_a_form_refuses_a_readers_credentials_too(url: str) -> None:
    import jsonschema

    for kind in (BuildParameters, EvaluateParameters):
        with pytest.raises(ValueError, match="qa_reader") as caught:
            kind.model_validate({"corpus": "c.jsonl", "task": "svamp", "qa_reader": url})
        assert not [secret for secret in ("me:", "p/w", "key=") if secret in str(caught.value)]
    schema = form_schema(DEPLOYMENTS[0])["definitions"]["BuildParameters"]["properties"]["qa_reader"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(url, schema)
    for reader in (
        "embedded",
        "/models/bert",
        "org/bert",
        "https://host:8443/v1#org/m",
        "http://127.0.0.1:1/v1#m",
        None,
    ):
        jsonschema.validate(reader, schema)
        assert BuildParameters(corpus="c.jsonl", qa_reader=reader).qa_reader == reader
    with pytest.raises(ValueError, match="plain HTTP"):
        BuildParameters(corpus="c.jsonl", qa_reader="http://host/v1#m")


@pytest.mark.parametrize("form", [["--qa-reader", "URL"], ["--qa-reader=URL"]])
def test_a_readers_credentials_go_into_the_environment(
    run: Run, form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["build", *(word.replace("URL", "https://me:pw@host/v1#m") for word in form), "--model", "m"]
    public = ["build", *(word.replace("URL", "https://host/v1#m") for word in form), "--model", "m"]
    assert without_credentials(given) == public
    assert environment()["TOOLFORMER_QA_KEY_HOST"] == "me:pw@"
    assert "in TOOLFORMER_QA_KEY_HOST" in capsys.readouterr().err
    assert without_credentials(["--qa-reader", "org/bert", "--qa-reader"]) == ["--qa-reader", "org/bert", "--qa-reader"]


def test_the_credentials_of_a_remote_model_go_into_the_environment(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    public = without_credentials(["build", "--model", "remote+http://me:pw@host/v1#70b"])
    assert public == ["build", "--model", "remote+http://host/v1#70b"]
    assert environment()["TOOLFORMER_MODEL_KEY_HOST"] == "me:pw@"
    assert model_credentials(public[-1]) == Credentials(login="me:pw")
    assert "in TOOLFORMER_MODEL_KEY_HOST" in capsys.readouterr().err
