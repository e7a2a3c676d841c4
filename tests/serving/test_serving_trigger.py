"""Thresholds on p(" ["): the server's own, and a request's."""

from __future__ import annotations

import httpx
import pytest

from tests.core.decode.writers import torn
from tests.fakes import FakeTool
from tests.serving.servers import body_of, running
from tests.tiny import tokenizer
from toolformer_core.decode.toolformer import Toolformer


class T(FakeTool):
    key, name = "t", "T"


def test_a_request_may_name_its_own_thresholds() -> None:
    lm, p = torn(tokenizer(), "T(7) ->")  # p(" [") behind "So!"
    above = p * 1.001

    def calls(**more: object) -> int:
        sent = httpx.post(f"{server.url}/v1/completions", json=body_of(toolformer={"k": 2, **more}))
        return len(sent.json()["choices"][0]["toolformer"]["calls"])

    with running(lambda: Toolformer(lm, [T({"7": "49"})]), trigger={"t": above}) as server:
        assert calls() == 0
        assert calls(trigger={}) == 1
        assert calls(trigger={"t": p * 0.999}) == 1
        assert calls(trigger={"t": above}) == 0
        for wrong, says in (({"t": 1.5}, "less than or equal to 1"), ({"tt": 0.5}, "unknown tool in trigger 'tt'")):
            refused = httpx.post(f"{server.url}/v1/completions", json=body_of(toolformer={"trigger": wrong}))
            assert refused.status_code == 400
            error = refused.json()["error"]
            assert says in error["message"]
            assert error["param"].startswith("toolformer.trigger")
    assert p < above < 1


@pytest.mark.parametrize("router", ["off", "gear"])
def test_the_option_reaches_the_server(router: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from typer.testing import CliRunner

    from cli.main import app
    from serving.server import ModelServer

    served = []
    monkeypatch.setattr(ModelServer, "serve_until_ended", lambda self: served.append(self.settings.trigger))
    words = ["serve", "--port", "0", "--trigger", "calculator=0.2", "--tools", "calculator", "--router", router]
    told = CliRunner().invoke(app, words)
    assert (told.exit_code, served) == (0, [{"calculator": 0.2}])
