"""How models are named: what kind of name it is, and what of one behind a server is a secret."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolformer_core.endpoints import Credentials
from toolformer_core.errors import ModelError
from toolformer_core.lm.reference import ModelRef
from toolformer_core.lm.vllm_server import VllmServer

_UNRESERVED = st.text("abcXYZ019-._~%", min_size=1, max_size=12)


@given(login=_UNRESERVED, password=_UNRESERVED, query=_UNRESERVED)
def test_what_stands_in_a_url_is_what_the_environment_holds(login: str, password: str, query: str) -> None:
    served = ModelRef.of(f"vllm+https://{login}:{password}@gpu.example:8000/v1?key={query}#org/model")
    assert (served.url, served.model) == ("https://gpu.example:8000/v1", "org/model")
    assert served.name == "vllm+https://gpu.example:8000/v1#org/model"
    assert served.credentials == Credentials(login=f"{login}:{password}", query=f"key={query}")
    assert Credentials.parse(served.credentials.text()) == served.credentials


@pytest.mark.parametrize(
    ("text", "credentials", "header"),
    [
        ("sk-abc", Credentials(key="sk-abc"), "Bearer sk-abc"),
        ("a@b", Credentials(key="a@b"), "Bearer a@b"),  # a login ends with its @
        ("user:p%40w@", Credentials(login="user:p%40w"), "Basic dXNlcjpwQHc="),  # base64 of user:p@w
        ("?key=K", Credentials(query="key=K"), ""),
        ("user:pw@?key=K", Credentials(login="user:pw", query="key=K"), "Basic dXNlcjpwdw=="),
        ("", Credentials(), ""),
    ],
)
def test_what_the_environment_may_hold(text: str, credentials: Credentials, header: str) -> None:
    assert Credentials.parse(text) == credentials
    assert credentials.authorization() == header
    assert bool(credentials) == bool(text)


def test_no_repr_holds_a_secret() -> None:
    server = VllmServer("http://h/v1", "m", credentials=Credentials("sesame", "user:sesame", "key=sesame"))
    assert "sesame" not in repr(server)
    assert server.credentials.redact("GET /v1?key=sesame by user:sesame") == "GET /v1?*** by ***"


# unescaped, / ends the host
_BY_USER = ("sesame/pw@host/v1#model", "12/sesame@host/v1#model", "12#sesame@host/v1#model", "12?sesame@host/v1#model")


@pytest.mark.parametrize("rest", [*(f"http://user:{one}" for one in _BY_USER), "u:sesame@h#m", "http://u:sesame@h/v1"])
def test_what_cannot_be_read_is_not_repeated(rest: str) -> None:
    with pytest.raises(ModelError, match="write vllm\\+http://host:port/v1#model") as caught:
        ModelRef.of(f"vllm+{rest}")
    assert "sesame" not in str(caught.value)
    assert "12" not in str(caught.value)


def test_a_folder_may_have_an_at_in_its_name() -> None:
    served = ModelRef.of("vllm+http://host/v1#/models@v2/x?")
    assert (served.model, bool(served.credentials)) == ("/models@v2/x?", False)


def test_a_name_is_told_apart_by_what_lies_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("org/model", "coded"):
        Path(folder).mkdir(parents=True)
    Path("m.gguf").touch()
    Path("coded", "tokenizer.json").touch()
    names = ["embedded", "org/model", "m.gguf", "org/other", "none.gguf", "vllm+http://h/v1#m"]
    assert [ModelRef.of(name).kind for name in names] == ["embedded", "folder", "gguf", "hub", "hub", "vllm"]
    absolute = [ModelRef.of(name).absolute().name for name in names]
    assert absolute == ["embedded", f"{tmp_path}/org/model", f"{tmp_path}/m.gguf", *names[3:]]
    remote = ModelRef.of("remote+http://h/v1#70b?tokenizer=coded")
    assert (remote.kind, remote.model, remote.tokenizer) == ("remote", "70b", "coded")
    assert remote.absolute().name == f"remote+http://h/v1#70b?tokenizer={tmp_path}/coded"
    assert remote.local_file("tokenizer.json") == Path("coded/tokenizer.json")
    assert remote.local_file("config.json") is None
    assert ModelRef.of("embedded").local_file("config.json") is not None
