"""The documentation: it builds without a warning and loads nothing from elsewhere; its links and commands are there."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import typer.main

from docs import hooks, options

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
PAGES = [
    *sorted(DOCS.rglob("*.md")),
    *(REPOSITORY / p for p in ("README.md", "CONTRIBUTING.md", "warehouse/README.md")),
]
_LINK = re.compile(r"\]\(([^)\s]+)\)")


class Page(HTMLParser):
    """What a page of the site links to, what it loads, and where it can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.classes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = {name: value or "" for name, value in attrs}
        self.anchors |= {own[name] for name in ("id", "name") if name in own}
        self.classes |= set(own.get("class", "").split())
        if tag == "a" and "href" in own:
            self.links.append(own["href"])
        self.loaded += [own[name] for name in ("src", "srcset") if name in own]
        if tag == "link" and own.get("rel") != "canonical":
            self.loaded.append(own.get("href", ""))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_what_a_page_links_to_in_the_repository_is_there(page: Path) -> None:
    targets = [t.partition("#")[0] for t in _LINK.findall(page.read_text(encoding="utf-8")) if not urlsplit(t).scheme]
    placed = {DOCS / name: REPOSITORY / path for path, name in hooks.INCLUDED.items()}
    there = {target: (page.parent / target).resolve() for target in targets if target}
    assert [target for target, path in there.items() if not placed.get(path, path).exists()] == []


def test_the_site_is_built_without_a_warning_and_all_it_links_to_and_loads_is_there(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    pytest.importorskip("mkdocstrings", reason="the extra `docs` is not installed")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    pages = {p: Page(p.read_text(encoding="utf-8")) for p in site.rglob("*.html") if p.name != "404.html"}
    assert {site / name for name in ("index.html", "quickstart.html", "warehouse.html", "api/core.html")} <= set(pages)
    for path, page in pages.items():
        assert [url for url in page.loaded if urlsplit(url).netloc] == []  # nothing comes from elsewhere
        assert "mermaid" not in page.classes  # the theme would fetch what draws it
        for link in (*page.links, *page.loaded):
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{path.name} links to {link}"
            if url.fragment and target in pages:
                assert unquote(url.fragment) in pages[target].anchors, f"{path.name} links to {link}"
    reference = (site / "api/warehouse.html").read_text(encoding="utf-8")
    assert 'id="warehouse.queries.calls.gain_histogram"' in reference  # from the docstring


def test_every_page_stands_in_the_navigation() -> None:
    nav = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"(?m)^ +- [^:\n]+: (\S+\.md)$", nav))
    assert named - set(hooks.INCLUDED.values()) == {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")}


def test_links_are_led_to_the_pages_of_the_site() -> None:
    class Where:
        def __init__(self, src_uri: str) -> None:
            self.file = self
            self.src_uri = src_uri

    def led(text: str, page: str) -> str:
        return str(hooks.on_page_markdown(text, Where(page), None, None))

    assert led("[a](../benchmarks/RESULTS.md)", "scale.md") == "[a](results.md)"
    assert led("[a](../docs/tools.md#passages)", "warehouse.md") == "[a](tools.md#passages)"  # it lies in warehouse/
    assert led("[a](warehouse/README.md)", "contributing.md") == "[a](warehouse.md)"
    assert led("[a](../warehouse.md)", "api/warehouse.md") == "[a](../warehouse.md)"
    assert led("[a](../cli/main.py) ![b](images/b.png) [c](https://c.example/)", "building.md") == (
        "a ![b](images/b.png) [c](https://c.example/)"  # no page of the site; a picture; somewhere else
    )


@pytest.mark.parametrize("page", options.PAGES)
def test_tables_of_options_are_those_of_the_commands(page: str) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    assert text == options.written(page), "write it anew: python docs/options.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(REPOSITORY)))
def test_commands_of_a_page_have_the_options_that_they_are_given(page: Path) -> None:
    from cli.main import app

    blocks = "\n".join(re.findall(r"(?s)```sh\n(.*?)```", page.read_text(encoding="utf-8"))).replace("\\\n", " ")
    for line in re.findall(r"(?m)^(?:docker compose run --rm )?toolformer ([^#\n]*)", blocks):
        words = line.split()
        command: Any = typer.main.get_command(app)
        while hasattr(command, "commands"):
            default = "benchmarks" if "--task" in words else "query"  # `ground` needs neither word
            command = command.commands[words.pop(0) if words[0] in command.commands else default]
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known, line
