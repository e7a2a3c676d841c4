"""Make texts of an encyclopedia's passages, and search passages without them: texts.jsonl and index.jsonl.

    python recipes/wiki.py passages.jsonl --out wiki

Of each article that has several passages the first one is a text, in which tools are tried; all other passages are what
they search. So a search cannot find the text itself, but may find more of its article.
"""

import argparse
import json
from pathlib import Path


def split(passages: Path, out: Path) -> tuple[int, int]:
    """Write both files; return the number of texts and of passages to search."""
    rows = [json.loads(line) for line in passages.read_text("utf-8").splitlines()]
    titles = [row["title"] for row in rows]
    first = {title: n for n, title in reversed(list(enumerate(titles)))}
    chosen = {n for title, n in first.items() if titles.count(title) > 1}
    texts = [{"text": row["text"], "url": f"wiki:{n}"} for n, row in enumerate(rows) if n in chosen]
    index = [{"title": row["title"], "text": row["text"]} for n, row in enumerate(rows) if n not in chosen]
    out.mkdir(parents=True, exist_ok=True)
    for name, part in (("texts", texts), ("index", index)):
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in part)
        (out / f"{name}.jsonl").write_text("".join(lines), "utf-8")
    return len(texts), len(index)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("passages", type=Path, help="JSONL of title and text")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    given = parser.parse_args()
    print("{:,} texts, {:,} passages to search".format(*split(given.passages, given.out)))


if __name__ == "__main__":
    main()
