"""Make texts of Tatoeba's pairs, in which a foreign sentence stands before what it means in English.

    python recipes/tatoeba.py texts/mt --out tatoeba.jsonl

The folder holds pairs of files, `tatoeba.LANGUAGE-eng.LANGUAGE` and `.eng`, a sentence a line.
"""

import argparse
import json
from pathlib import Path

_NAMES = {"cmn": "Chinese", "deu": "German", "fra": "French", "spa": "Spanish"}


def texts(folder: Path) -> list[dict[str, str]]:
    """Return a text a pair, the languages in turn."""
    by_language = []
    for code, name in _NAMES.items():
        stem = folder / f"tatoeba.{code}-eng"
        foreign, english = (Path(f"{stem}.{part}").read_text("utf-8").splitlines() for part in (code, "eng"))
        by_language.append(
            [
                {
                    "text": f"This is a sentence in {name}, and then the same in English. {there} It means: {here}",
                    "url": f"tatoeba:{code}:{n}",
                }
                for n, (there, here) in enumerate(zip(foreign, english, strict=True))
            ]
        )
    return [row for rows in zip(*by_language, strict=True) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with Tatoeba's pairs")
    parser.add_argument("--out", type=Path, required=True, help="JSONL to write")
    given = parser.parse_args()
    rows = texts(given.folder)
    given.out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    print(f"{len(rows):,} texts")


if __name__ == "__main__":
    main()
