"""The page in a real browser: Debian's Chromium, headless."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from serving.server import ModelServer
from tests.serving.conftest import ROWS
from tests.serving.servers import NAME, gated_server, model_server, until
from toolformer_core.decode.records import GenerationSettings
from toolformer_core.decode.toolformer import Toolformer
from toolformer_core.lm.hf.engine import TransformersLM

CHROMIUM = shutil.which("chromium")
SHOW_MS = 20_000
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no chromium on PATH: install Debian's package `chromium`"
)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    """One page, and a list of what went wrong in it or left this machine."""
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        found = browser.new_page()
        found.set_default_timeout(SHOW_MS)
        wrong: list[str] = []
        found.on("pageerror", lambda error: wrong.append(str(error)))
        found.on("request", lambda r: None if "//127.0.0.1" in r.url or r.url == "data:," else wrong.append(r.url))
        yield found
        browser.close()
    assert wrong == []


def visit(page: Page, server: ModelServer) -> None:
    page.goto(server.url)
    expect(page.locator("#model")).to_contain_text(NAME)


def write(page: Page, prompt: str, **fields: str) -> None:
    page.get_by_label("Text to go on from").fill(prompt)
    for label, value in fields.items():
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_role("button", name="Write on").press("Enter")


def test_text_streams_in_with_its_call_highlighted(page: Page, lm: TransformersLM, alone: Toolformer) -> None:
    with gated_server(lm) as (server, let_go):
        visit(page, server)
        assert page.locator("#tools label").all_inner_texts() == [" T", " U"]
        write(page, "So!", k="1", Tokens="8")
        call = page.locator("#out mark")
        expect(call).to_have_class("call waiting")  # while the tool is at work
        (want,) = alone.generate(["So!"], GenerationSettings(max_new_tokens=8, top_k=1))
        begun = want.text[: want.text.index(" ->") + 3]
        assert call.text_content() == begun
        assert page.locator("#out").text_content() == "So!" + begun
        expect(page.locator("#status")).to_contain_text("asking")
        let_go()
        expect(page.locator("#status")).to_have_text("done: 1 call")
        expect(call).to_have_class("call")
        assert call.text_content() == f"{begun} 49]"
        expect(page.locator("#stats")).to_be_visible()
        assert page.locator("#first").inner_text().endswith(" ms")
        assert page.locator("#calls").inner_text() == "1"
        assert page.locator("#finish").inner_text() == "length"
        assert "after 4 of the prompt" in page.locator("#tokens").inner_text()
        assert page.locator("#out").get_attribute("aria-busy") == "false"


def test_k_calls_and_tools_are_the_user_s(page: Page, server: ModelServer) -> None:
    visit(page, server)
    write(page, "So!", k="0")
    expect(page.locator("#status")).to_have_text("done: 0 calls")
    write(page, "So!", k="1", **{"Calls at most": "0"})
    expect(page.locator("#status")).to_have_text("done: 0 calls")
    for box in page.locator("#tools input").all():
        box.uncheck()
    write(page, "So!", k="1", **{"Calls at most": "1"})
    expect(page.locator("#out mark")).to_have_class("call failed")
    expect(page.locator("#calls")).to_have_text("1, 1 without a response")


def test_stop_ends_the_sequence(page: Page, lm: TransformersLM) -> None:
    with gated_server(lm) as (server, _):
        visit(page, server)
        write(page, "So!", k="1")
        expect(page.locator("#out mark")).to_have_class("call waiting")
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#status")).to_have_text("stopped")
        until(lambda: server.engine_thread.taken == 0, "the end of its row")


def test_markup_in_a_text_is_text(page: Page, server: ModelServer) -> None:
    visit(page, server)
    write(page, "<img src=x onerror='document.title=1'><b>bold</b>", k="0", Tokens="4")
    expect(page.locator("#status")).to_have_text("done: 0 calls")
    assert page.locator("#out img, #out b").count() == 0
    assert page.title() == "Toolformer"


def test_what_is_refused_is_said(page: Page, lm: TransformersLM) -> None:
    with model_server(lm, rows=ROWS, api_key="a key") as server:
        page.goto(server.url)
        expect(page.locator("#model")).to_contain_text("API key")
        page.get_by_label("API key").fill("a key")
        write(page, "x", Tokens="3")
        expect(page.locator("#status")).to_have_text("done: 0 calls")
        write(page, "word " * 600, Tokens="3")
        expect(page.locator("#status.error")).to_contain_text("context")


def test_every_control_has_a_name_and_the_page_a_language(page: Page, server: ModelServer) -> None:
    visit(page, server)
    assert page.locator("html").get_attribute("lang") == "en"
    named = "e => [...e].every(c => c.labels.length > 0)"
    assert page.locator("input, textarea").evaluate_all(named)
    for name in ("k", "Calls at most", "Tokens", "Temperature", "Calendar's date", "T", "U", "API key"):
        expect(page.get_by_label(name, exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Text")).to_be_visible()
    expect(page.get_by_role("status")).to_be_attached()
