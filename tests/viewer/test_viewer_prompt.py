"""A prompt to two models: what is streamed, who may ask what, and the processes that hold the models."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from fastapi.testclient import TestClient

from tests.viewer.test_viewer_pages import words
from toolformer_core.errors import ModelError, UsageError
from viewer.app import make_app
from viewer.model_servers import ModelServers
from viewer.pages.prompt import Prompter
from viewer.server import ViewerServer

# A program with the lines of `viewer.model_process`, and a server that answers any prompt with one call.
FAKE = """
import http.server, json, sys, threading
if "broken" in sys.argv[-1]:
    print(json.dumps({"problem": "the model has no weights"}), flush=True)
    sys.exit(1)
if "silent" in sys.argv[-1]:
    sys.exit(3)
def chunk(text, finish=None, **about):
    more = {"toolformer": about} if about else {}
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish, **more}]}
CALL = {"failure": "empty" if "empty" in sys.argv[-1] else None}
class Handler(http.server.BaseHTTPRequestHandler):
    def reply(self, body, kind="application/json", status=200):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        tools = [{"key": "calculator", "name": "Calculator"}]
        self.reply(json.dumps({"data": [{"id": "model", "toolformer": {"tools": tools}}]}).encode())
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked["prompt"] == "too long":
            self.reply(json.dumps({"error": {"message": "the prompt is too long"}}).encode(), status=400)
            return
        said = [chunk(f" k={asked['toolformer']['k']}")]
        said += [chunk(" [Calculator(1 + 1) ->", event="call_started", tool="Calculator", input="1 + 1")]
        said += [chunk(" 2]", event="call_finished", call=CALL), chunk(" <b>2")]
        said += [chunk("", "stop", calls=[CALL], text_tokens=3)]
        self.reply(b"".join(b"data: " + json.dumps(one).encode() + b"\\n\\n" for one in said) + b"data: [DONE]\\n\\n")
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}"}), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """The program in place of the one that loads a model."""
    file = tmp_path_factory.mktemp("program") / "fake.py"
    file.write_text(FAKE, encoding="utf-8")
    return sys.executable, str(file)


def children() -> list[psutil.Process]:
    return [one for one in psutil.Process().children() if any("fake.py" in word for word in one.cmdline())]


@pytest.fixture
def client(data: Path, command: Sequence[str]) -> Iterator[TestClient]:
    """A client of a viewer whose models are fakes; at its end none of them is left."""
    app = make_app(str(data), prompter=Prompter(ModelServers(command=command)))
    with TestClient(app, base_url="http://127.0.0.1:8001") as found:
        yield found
    assert children() == []


def said(client: TestClient, **form: Any) -> list[dict[str, Any]]:
    """Return the events of a streamed answer."""
    headers = {"accept": "text/event-stream"}
    answer = client.post("/models/prompt", data={"prompt": "Two is", **form}, headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [json.loads(part.removeprefix("data: ")) for part in answer.text.split("\n\n") if part]


def test_an_answer_is_streamed_with_its_calls(client: TestClient) -> None:
    state, *events = said(client, a="first", ka=3)
    assert state["kind"] == "state"
    assert [(event["kind"], event["text"]) for event in events] == [
        ("text", " k=3"),
        ("call", " [Calculator(1 + 1) ->"),
        ("more", " 2]"),
        ("text", " <b>2"),
        ("done", "3 tokens, 1 call"),
    ]
    assert events[1]["class"] == "tool-0"
    assert said(client, a="first")[0]["text"] == " k=10"  # it is loaded already


def test_each_side_has_a_model_of_its_own(client: TestClient) -> None:
    for side, k in (("a", 1), ("b", 2)):
        assert f" k={k}" in [event["text"] for event in said(client, side=side, a="one", b="two", ka=1, kb=2)]
    assert len(children()) == 2
    said(client, a="three")  # the one that was asked first makes room
    assert sorted(process.cmdline()[-1] for process in children()) == ["three", "two"]


def test_without_a_script_the_page_has_both_answers(client: TestClient) -> None:
    answer = client.post("/models/prompt", data={"prompt": "Two is", "a": "first", "b": "empty"})
    shown = words(answer.text)
    assert shown.count("Two is k=10 [Calculator(1 + 1) -> 2] <b>2") == 2
    assert shown.count("A call failed: empty. 3 tokens, 1 call") == 1
    assert "<b>2" not in answer.text
    assert '<mark class="call tool-0">' in answer.text


def test_a_model_that_cannot_be_loaded_says_why(client: TestClient) -> None:
    assert said(client, a="broken")[-1] == {"kind": "error", "text": "the model has no weights", "problem": ""}
    assert "the viewer's log says why" in said(client, a="silent")[-1]["text"]
    assert said(client, a="first", prompt="too long")[-1]["text"] == "the prompt is too long"
    assert "has no weights" in said(client, a="broken")[-1]["text"]  # and again, for another try


def test_wrong_values_are_told_and_other_pages_may_not_ask(client: TestClient) -> None:
    for wrong in ({"a": "--help"}, {"a": "first", "tokens": 9999}, {"a": "first", "ka": "x"}, {"a": ""}):
        assert client.post("/models/prompt", data={"prompt": "x", **wrong}).status_code == 400
    assert client.post("/models/prompt", data={"a": "first", "b": "first"}).status_code == 400
    headers = {"origin": "http://evil.example"}
    assert client.post("/models/prompt", data={"prompt": "x", "a": "first"}, headers=headers).status_code == 403
    assert children() == []


def test_the_page_fills_the_form_and_asks_nobody(client: TestClient) -> None:
    shown = client.get("/models/prompt", params={"prompt": "Two is", "a": "first", "ka": "2"}).text
    assert ">Two is</textarea>" in shown
    assert 'value="first"' in shown
    assert children() == []


def test_a_given_server_is_asked_and_no_process_is_started(data: Path, command: Sequence[str]) -> None:
    async def ask() -> None:
        elsewhere = ModelServers(command=command)
        async with elsewhere.serving("m") as url:
            given = ModelServers({"ours": url}, command=["false"])
            async with given.serving("ours") as same:
                assert same == url
            app = make_app(str(data), prompter=Prompter(given, any_model=False))
            with TestClient(app, base_url="http://127.0.0.1:8001") as client:
                asked = await asyncio.to_thread(said, client, a="ours")
                refused = await asyncio.to_thread(client.post, "/models/prompt", data={"prompt": "x", "a": "other"})
        assert [event["kind"] for event in asked] == ["text", "call", "more", "text", "done"]
        assert refused.status_code == 400
        assert "this viewer asks the models ours, embedded" in refused.text
        await elsewhere.close()

    asyncio.run(ask())
    assert children() == []


def test_idle_processes_end_and_those_in_use_do_not(command: Sequence[str]) -> None:
    async def use() -> None:
        servers = ModelServers(command=command, idle_s=0.0, most=1)
        async with servers.serving("one"):
            with pytest.raises(ModelError, match="one are writing"):
                async with servers.serving("two"):
                    raise AssertionError
            async with servers.serving("one"):  # the same process
                assert len(children()) == 1
            assert servers.runs("one")
        while servers.runs("one"):
            await asyncio.sleep(0)
        async with servers.serving("two"):
            assert servers.runs("two")
        await servers.close()

    asyncio.run(use())
    assert children() == []


def test_a_process_that_was_killed_is_started_anew(command: Sequence[str]) -> None:
    async def use() -> None:
        servers = ModelServers(command=command)
        async with servers.serving("one") as first:
            children()[0].kill()
            while servers.runs("one"):
                await asyncio.sleep(0)
        async with servers.serving("one") as second:
            assert second != first
        await servers.close()

    asyncio.run(use())


def test_servers_are_named_with_an_address(data: Path) -> None:
    for wrong in ("ours", "=http://h", "ours=h:8000", "ours=file:///x", "ours=http://u:pw@h"):
        with pytest.raises(UsageError, match="write NAME=URL") as told:
            ViewerServer(str(data), port=0, serve=[wrong])
        assert "pw" not in str(told.value)
