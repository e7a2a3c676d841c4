import json
import logging
import pickle
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.responses import RedirectResponse, Response

from tests.support.chat_server import ChatServer, chat_server
from toolformer_core.annotate.execute import execute
from toolformer_core.config import ExecuteConfig
from toolformer_core.endpoints import Credentials
from toolformer_core.errors import ModelError
from toolformer_core.records import ToolFailure, ToolResponse
from toolformer_core.tools.base import REMOTE_TTL_S, ToolLimits, limits_of, ttl_of
from toolformer_core.tools.build import ToolSettings, build_tools
from toolformer_core.tools.execution.pool import AnnotationPool
from toolformer_core.tools.qa import QA, Reading
from toolformer_core.tools.qa_readers import served
from toolformer_core.tools.qa_readers.served import ServedReader, reader_endpoint
from toolformer_core.tools.search.passages import Hit, Passage, PassageIndex

SECRET = "sk-very/secret"
HITS = [Hit(Passage(0, "Velden", "", "The mayor of Velden is Tora Lind."), 1.0)]
QUESTION = "Who is the mayor of Velden?"


@pytest.fixture(scope="module")
def running() -> Iterator[ChatServer]:
    with chat_server() as server:
        yield server


@pytest.fixture
def server(running: ChatServer) -> Iterator[ChatServer]:
    yield running
    running.__dict__.update({**ChatServer().__dict__, "at": running.at, "let_go": running.let_go})


@pytest.fixture
def reader(server: ChatServer) -> ServedReader:
    return ServedReader(f"{server.url}#tiny", credentials=Credentials(key=SECRET))


def read(reader: ServedReader, question: str = QUESTION, hits: Sequence[Hit] = HITS) -> Reading:
    return reader.read([(question, hits)])[0]


def test_a_question_goes_out_with_its_passages_and_comes_back_short(server: ChatServer, reader: ServedReader) -> None:
    server.key = SECRET
    server.answer = lambda prompt: "Answer: Tora Lind.\n"
    reader.load()
    assert read(reader) == "Tora Lind"
    (body,) = server.asked
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("tiny", 0, 64)
    (message,) = body["messages"]
    assert "Velden: The mayor of Velden is Tora Lind." in message["content"]
    assert message["content"].endswith(f"Question: {QUESTION}")
    assert server.authorizations == [f"Bearer {SECRET}"]


@pytest.mark.parametrize("said", ["no answer", "No answer.", '"no answer"', "", "<think>hm"])
def test_no_answer_is_recognised(server: ChatServer, reader: ServedReader, said: str) -> None:
    server.answer = lambda prompt: said
    assert read(reader) is None


def test_nothing_is_asked_without_passages_and_a_choice_without_text_is_none(
    server: ChatServer, reader: ServedReader
) -> None:
    assert read(reader, QUESTION, []) is None
    assert server.asked == []
    server.next.append(Response('{"choices": [{"message": {"content": null, "refusal": "no"}}]}'))
    assert read(reader) is None


def test_long_texts_are_cut(server: ChatServer, reader: ServedReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "_PASSAGE_CHARS", 20)
    long = Hit(Passage(0, "A", "", "b" * 500), 1.0)
    assert read(reader, "\ud800{question} {0} " + "x" * 5_000, [long]) == "Tora Lind"
    content = server.asked[0]["messages"][0]["content"]
    assert f"Passages:\nA: {'b' * 17}\n\nQuestion: \\ud800{{question}} {{0}} x" in content  # 3 + 17 = 20 characters
    assert content.count("x") < 1_000 + len(served._PROMPT)


@pytest.mark.parametrize(
    ("response", "failure"),
    [
        (Response('{"error": {"message": "a\\nb"}}', 429), ToolFailure("rate_limited", "URL answered 429: a", True)),
        (Response('{"error": "too long"}', 400), ToolFailure("refused", "URL answered 400: too long")),
        (Response("[" * 100_000, 200), ToolFailure("bad_response", "URL sent no chat completion", True)),
        (Response("x" * (2 << 20), 200), ToolFailure("bad_response", "URL sent no chat completion", True)),
    ],
)
def test_typed_failures(server: ChatServer, reader: ServedReader, response: Response, failure: ToolFailure) -> None:
    server.next.append(response)
    found = read(reader)
    assert isinstance(found, ToolFailure)
    assert ToolFailure(found.reason, found.detail.replace(server.url, "URL"), found.retryable) == failure
    assert read(reader) == "Tora Lind"  # the next question is answered


def test_a_server_that_does_not_answer_in_time_may_be_asked_again(server: ChatServer) -> None:
    server.silent = True
    reader = ServedReader(f"{server.url}#tiny", timeout_s=0.2)
    assert read(reader) == ToolFailure("timeout", f"{server.url} did not answer within 0.2 s", True)
    server.let_go.set()


def test_a_server_that_is_gone_may_come_back_but_must_be_there_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    reader = ServedReader(f"http://127.0.0.1:{port}/v1#tiny")
    failure = read(reader)
    assert isinstance(failure, ToolFailure)
    assert (failure.reason, failure.retryable) == ("unavailable", True)
    with pytest.raises(ModelError, match="no server answers at"):
        reader.load()


def test_what_concerns_every_question_ends_the_run(server: ChatServer, reader: ServedReader) -> None:
    server.key = "another"
    for ask in (reader.load, lambda: read(reader)):
        with pytest.raises(ModelError, match=r"refuses access to 'tiny' \(401\).*TOOLFORMER_QA_KEY") as caught:
            ask()
        assert SECRET not in str(caught.value)
    server.key = ""
    server.next.append(Response('{"error": {"message": "no such model"}}', 404))
    with pytest.raises(ModelError, match="answered 404: no such model; is there a model 'tiny'"):
        read(reader)


def test_redirects_are_not_followed(server: ChatServer, reader: ServedReader) -> None:
    with chat_server() as other:
        server.next.append(RedirectResponse(f"{other.url}/chat/completions?{SECRET}", 307))
        with pytest.raises(ModelError, match="answered 307") as caught:
            read(reader)
        assert other.asked == []
    assert SECRET not in str(caught.value)


def test_a_secret_is_shown_nowhere(server: ChatServer, reader: ServedReader, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "httpx2")
    server.next.append(Response(json.dumps({"error": {"message": f"the key {SECRET} is tired"}}), 429))
    failure = read(reader)
    assert isinstance(failure, ToolFailure)
    assert failure.detail.endswith("answered 429: the key *** is tired")
    plain = ServedReader(f"{server.url}#tiny")
    assert reader.digest == plain.digest
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.digest == reader.digest
    assert (copy.timeout_s, copy.at_once) == (reader.timeout_s, reader.at_once)
    for shown in (repr(reader), str(vars(reader)), str(pickle.dumps(reader)), caplog.text):
        assert SECRET not in shown


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://gpu.example:8000/v1#m", "another machine, and plain HTTP can be read"),
        ("ftp://host/v1#m", "does not name a server and a model"),
        (f"https://user:{SECRET}@host/v1#m", "may hold a secret"),  # its / is not escaped
        ("https://user:secret@host/v1#m", "leave the credentials out of the address of the reader at https://host/v1;"),
        ("https://host/v1?key=secret#m", "leave the credentials out of the address of the reader at https://host/v1;"),
    ],
)
def test_an_address_that_cannot_be_used_is_an_error_without_its_secrets(address: str, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        ServedReader(address)
    assert message in str(caught.value)
    assert "secret@" not in str(caught.value)
    assert "key=" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://localhost:1/v1", "http://[::1]:1/v1", "http://127.0.0.9/v1", "https://a.example"]
)
def test_addresses_that_can_be_used(url: str) -> None:
    assert reader_endpoint(f"{url}#org/model").url == url
    with pytest.raises(ModelError, match="cannot be sent in the address"):
        ServedReader(f"{url}#org/model", Credentials(query="key=secret"))


@pytest.fixture
def passages(tmp_path: Path) -> Path:
    path = tmp_path / "p.jsonl"
    path.write_text('{"title": "Velden", "text": "The mayor of Velden is Tora Lind."}\n')
    return path


def test_a_build_asks_again_what_may_be_better_later(server: ChatServer, reader: ServedReader, passages: Path) -> None:
    server.next.extend([Response("", 429), Response("", 503)])
    tool = QA(PassageIndex(passages), reader)
    pool = AnnotationPool(tool, timeout_s=30.0, at_once=1, backoff=lambda tries: 0.0)
    (answered,) = execute(tool, [(QUESTION, "")], ExecuteConfig(), pool=pool)
    assert (answered.response, len(server.asked)) == ("Tora Lind", 3)
    server.next.append(Response('{"error": "too long"}', 400))
    (refused,) = execute(tool, [("Velden?", "")], ExecuteConfig(), pool=pool)
    assert (refused.failure, len(server.asked)) == ("refused", 4)
    pool.close()


def test_qa_asks_the_server_that_its_settings_name(server: ChatServer, passages: Path) -> None:
    server.key = SECRET
    server.answer = lambda prompt: prompt.rpartition("Question: ")[2].upper()
    settings = ToolSettings(passages=passages, qa_reader=f"{server.url}#tiny")
    tool = build_tools(["qa"], settings, qa_credentials=Credentials(key=SECRET))["qa"]
    assert isinstance(tool, QA)
    assert isinstance(tool.reader, ServedReader)
    tool.load()
    questions = [f"Velden {n}?" for n in range(20)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(tool.run, questions)) == [ToolResponse(question.upper()) for question in questions]
    assert tool.run_batch([(questions[0], ""), ("?", "")]) == [ToolResponse("VELDEN 0?"), ToolFailure("empty_input")]
    assert ttl_of(tool) == REMOTE_TTL_S
    assert limits_of(tool) == ToolLimits(at_once=8, timeout_s=120.0, tries=3)
    assert SECRET not in repr(tool) + str(pickle.dumps(settings))
    server.key = "another"
    with pytest.raises(ModelError, match="refuses access"):
        tool.run("Velden?")
