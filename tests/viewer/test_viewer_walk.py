"""A walk through the viewer in Debian's Chromium: no error is logged, nobody else asked, axe-core finds nothing."""

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from playwright.sync_api import Page, expect
from wh_fixtures import snapshot_of

from flows.build_dataset.flow import run_build
from flows.build_dataset.what_if_query import ask
from tests.support.small_builds import small_build
from tests.support.vendored import PACKAGES
from tests.viewer.test_viewer_models import put_evaluations
from viewer.rendering import MENU
from warehouse.queries import rows_of
from warehouse.ratings import read_ratings
from warehouse.store import Store
from warehouse.what_if import what_if

CHROMIUM = shutil.which("chromium")
SHOW_MS = 120_000  # at most, on a busy machine
WIDTHS = (1400, 390)  # pixels: a laptop's window and a telephone's
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on PATH: install Debian's package `chromium`"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def page(screenshots: ModuleType) -> Iterator[Page]:
    """One page, and a list of what went wrong in it or left this machine."""
    expect.set_options(timeout=SHOW_MS)
    with screenshots.browser_page(1280, 720) as found:
        found.set_default_timeout(SHOW_MS)
        wrong: list[str] = []
        found.on("pageerror", lambda error: wrong.append(str(error)))
        found.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        found.on("dialog", lambda dialog: wrong.append(dialog.message))
        found.on("request", lambda r: None if "//127.0.0.1" in r.url or r.url == "data:," else wrong.append(r.url))
        yield found
    assert wrong == []


def check_accessibility(page: Page) -> None:
    """Have axe-core look at the page."""
    [axe] = [package for package in PACKAGES if package.name == "axe-core"]
    page.evaluate((axe.own_folder / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("() => axe.run().then(found => found.violations)")
    serious = [
        (one["id"], [node["html"][:200] for node in one["nodes"][:3]])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert serious == [], page.url


def check_widths(page: Page, address: str, paths: Iterable[str]) -> None:
    """Visit pages in a wide and in a narrow window: nothing may stand beyond its edge."""
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        for path in paths:
            page.goto(address + path)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            check_accessibility(page)


def test_a_walk_through_a_real_build(page: Page, screenshots: ModuleType, as_built: Path, few_documents: Path) -> None:
    run_build(small_build(few_documents, as_built))  # its snapshot is to refer to this copy
    snapshot = as_built / "warehouse.duckdb"
    put_evaluations(Store(as_built))
    snapshot_of(Store(as_built))
    [call] = rows_of(snapshot, "FROM kept_calls ORDER BY gain DESC, doc_id LIMIT 1")
    with screenshots.viewer(str(as_built)) as url:
        # Read: from the version to a document and a call.
        page.goto(url)
        check_accessibility(page)
        page.get_by_role("link", name=re.compile("^cstar@")).first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Documents of cstar@")
        check_accessibility(page)
        page.locator(f'a[href^="/documents/{call["doc_id"]}"]').click()
        inline = page.locator("a.call", has_text=f"({call['input']}) -> {call['response']}]").first
        expect(inline).to_be_visible()
        inline.focus()
        page.keyboard.press("Enter")
        panel = page.get_by_role("region", name="The call")
        expect(panel).to_contain_text(f"{call['gain']:+.3f} nats")
        expect(panel).to_be_focused()
        expect(page).to_have_url(re.compile("call="))
        # The tokens' texts are those behind the position, and what the response helped them adds up to the gain.
        said = page.locator(".panel .tokens").inner_text()
        text = rows_of(snapshot, "SELECT text FROM documents WHERE doc_id = $id", {"id": call["doc_id"]})[0]["text"]
        assert said.strip() in text[call["position"] :]
        helps = page.locator(".panel td[class*=help]").all_inner_texts()
        assert sum(map(float, helps)) == pytest.approx(call["gain"], abs=0.0005 * len(helps))
        check_accessibility(page)
        page.reload()
        expect(panel).to_contain_text(f"{call['gain']:+.3f} nats")  # the URL is all that it takes

        # Find: a dropped call says why.
        page.get_by_role("link", name="Calls", exact=True).click()
        page.get_by_label("Outcome").select_option("below_threshold")
        page.get_by_role("button", name="Find").click()
        expect(page).to_have_url(re.compile("outcome=below_threshold"))
        check_accessibility(page)
        page.locator("tbody a").first.click()
        expect(panel).to_contain_text("dropped: below threshold")
        page.get_by_role("link", name="Documents", exact=True).click()
        page.get_by_label("Words or document id").fill(text[:30].split(" ")[0])
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_contain_text("documents on this page")

        # Move: with the keys, and the answer is that of what-if.
        page.get_by_role("link", name="Thresholds").click()
        check_accessibility(page)
        slider = page.get_by_label("tau_f of calendar, slider")
        slider.focus()
        page.keyboard.press("End")
        expect(page.get_by_label("tau_f of calendar", exact=True)).to_have_value("5")
        query = ask(snapshot, {"calendar": 5.0})
        answer = what_if(snapshot, query.before, query.after, 1000)
        expect(page.locator("#goes h2")).to_have_text(f"Calls that would be removed: {len(answer.goes)}")
        expect(page.locator("#comes h2")).to_have_text(f"Calls that would be added: {len(answer.comes)}")
        shown = page.locator("#goes tbody tr th").all_inner_texts()
        assert shown == [f"{call.input} → {call.response}".strip() for call in answer.goes][:10]
        expect(page.locator("pre")).to_have_text(f"toolformer what-if --tau calendar=5.0 --data {as_built}")
        expect(page).to_have_url(re.compile(r"tau\.calendar=5"))
        check_accessibility(page)

        # Materialise: the version is the flow's.
        page.get_by_label("Dataset").fill("strict")
        page.get_by_role("button", name="Materialise").click()
        made = page.get_by_role("link", name=re.compile("^strict@"))
        expect(made).to_be_visible()
        check_accessibility(page)
        label = made.inner_text()
        made.click()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Documents of {label}")
        thresholds = rows_of(snapshot, "SELECT thresholds->>'calendar' AS tau FROM datasets WHERE name = 'strict'")
        assert [float(row["tau"]) for row in thresholds] == [5.0]

        # Judge: by keys alone, one call after another.
        page.get_by_role("link", name="Judge").click()
        page.locator('select[name="tool"]').select_option("calendar")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("form.verdict")).to_be_focused()
        check_accessibility(page)
        for number, key in enumerate("ar", 1):
            expect(page.locator("form.verdict")).to_be_focused()  # the page's script has run; a key before is nobody's
            page.keyboard.press(key)
            expect(page.get_by_role("status")).to_contain_text(re.compile(rf"^{number} of \d+ kept calls of calendar"))
        expect(page.locator("tbody tr").first).to_contain_text("0.500")  # one right, one wrong
        # A click beside the buttons leaves the keys; a second key for a call that is judged already does nothing.
        page.locator("section.panel p.text").click()
        expect(page.locator("form.verdict")).to_be_focused()
        marked = page.evaluate(
            """() => {
                const sent = [];
                document.addEventListener("submit", (event) => {
                    sent.push(event.defaultPrevented); event.preventDefault();
                });
                const form = document.querySelector("form.verdict");
                for (const key of "Ar") form.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
                return sent;
            }"""
        )
        assert marked == [False, True]
        check_accessibility(page)
        assert [rating.verdict for rating in read_ratings(Store(as_built))[0]] == ["accept", "reject"]

        document = f"/documents/{call['doc_id']}?call={call['tool']}:{call['position']}:0"
        more = [document, "/judge?tool=calendar", "/sql?q=FROM+call_outcomes", "/versions/new"]
        check_widths(page, url, [*MENU, *more])


def test_hostile_texts_do_nothing(page: Page, screenshots: ModuleType, data: Path) -> None:
    with screenshots.viewer(str(data)) as url:
        for path in (
            "/documents",
            "/documents/hostile?call=calculator:25:0",
            "/calls",
            "/thresholds?tau.calculator=3",
            "/judge",
        ):
            page.goto(url + path)
            assert page.locator("main img, main b:text('bold'), main script").count() == 0
            check_accessibility(page)
        page.goto(f"{url}/sql")
        page.get_by_role("textbox").fill("SELECT '<img src=x onerror=alert(1)>' AS x")
        page.get_by_role("button", name="Run").click()
        expect(page.locator("tbody td")).to_have_text("<img src=x onerror=alert(1)>")
