"""What mkdocs asks while it builds the site: pages that lie elsewhere in the repository, and links that cross folders.

A page such as warehouse/README.md is taken where it lies, not copied. Links between such pages are written for a reader
of the repository; here they are led to the pages of the site. A link to what is no page of it becomes its text.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

# Pages of the site that lie outside docs/, by their path in the repository.
INCLUDED = {
    "warehouse/README.md": "warehouse.md",
    "benchmarks/RESULTS.md": "results.md",
    "CONTRIBUTING.md": "contributing.md",
}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s:]+?)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that lie outside docs/."""
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    for path, page in INCLUDED.items():
        files.append(File.generated(config, page, abs_src_path=str(root / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead the links that leave docs/, or come from outside it, to the pages of the site."""
    placed = {page: path for path, page in INCLUDED.items()}
    here = placed.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def led(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        site = INCLUDED.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if site is None:
            return text
        return f"[{text}]({posixpath.relpath(site, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"

    return _LINK.sub(led, markdown)
