"""What a card says of the texts: hosts and languages by share, and how many hold an address or a number."""

from pathlib import Path

import pytest
from wh_fixtures import make_run, put

from flows.build_dataset.texts import count_texts, plain_texts, texts_section
from warehouse.commits import Dataset, dataset_version
from warehouse.snapshot.publish import publish
from warehouse.store import Store

GERMAN = "Von den 587 Büchern der Bibliothek sind heute 58 ausgeliehen, die anderen stehen im Regal."
TEXTS = {
    "http://a.org/1": "Of the 587 books of the library 58 are lent out today. Ask jo@ex.org about the others.",
    "http://a.org/2": "The library lends its books to everybody who lives here; call (555) 010-4477 for a card.",
    "https://b.de/": GERMAN,
    None: "Nobody has read the other books of the library for a long time, and they stand on the shelves.",
}
CALL = "[Calculator(1 + 1) -> 2] "


@pytest.fixture
def stored(tmp_path: Path) -> tuple[Store, Dataset, Path]:
    store = Store(tmp_path)
    rows = [{"doc_id": f"d{n}", "text": text, "url": url} for n, (url, text) in enumerate(TEXTS.items())]
    rows.append({"doc_id": "d9", "text": "No call is here.", "url": "http://c.org"})  # it is not in C*
    call = {"tool": "calculator", "input": "1 + 1", "response": "2", "gain": 1.0}
    call |= {"position": 0, "start": 0, "end": len(CALL)}
    read = put(store, "ingest", "", "corpus", rows)
    examples = [{"doc_id": f"d{n}", "text": CALL + text, "calls": [call]} for n, text in enumerate(TEXTS.values())]
    made = put(store, "assemble", "", "part-00000", examples)
    store.write_run(make_run("r", [read.key, made.key]))
    about = ({"calculator": 4}, {"calculator": 0.5}, "r", "m", "c", "2026-01-01T00:00:00+00:00")
    return store, Dataset("c", dataset_version(made.files), made.files, *about), publish(store, None)


def test_texts_are_counted_without_their_calls(stored: tuple[Store, Dataset, Path]) -> None:
    store, dataset, snapshot = stored
    assert list(plain_texts(store, dataset)) == list(TEXTS.values())
    counts = count_texts(store, dataset, snapshot, mask_pii=False)
    assert counts == {
        "hosts": {"a.org": 2, "b.de": 1, "no address": 1},
        "languages": {"en": 3, "de": 1},
        "holding": {"e-mail address": 1, "telephone number": 1},
    }
    section = texts_section(counts, 4)
    assert "| hosts | a.org 50.0 %, b.de 25.0 %, no address 25.0 % |" in section  # 2, 1 and 1 of 4
    assert "| languages | en 75.0 %, de 25.0 % |" in section
    assert "| texts with e-mail addresses | 1 |" in section
    assert "a.org 40.0 %, b.de 20.0 %, no address 20.0 %, others 20.0 %" in texts_section(counts, 5)  # of 5 one is left


def test_masked_ones_are_not_counted(stored: tuple[Store, Dataset, Path]) -> None:
    store, dataset, snapshot = stored
    counts = count_texts(store, dataset, snapshot, mask_pii=True)
    assert counts["holding"] == {}
    assert "| e-mail addresses and telephone numbers | masked |" in texts_section(counts, 4)
