"""The C* that loaders are tried on, and its cases."""

import json
from pathlib import Path

import pytest

from certify import __main__ as command
from certify.cases import LOADERS, Files, cases_of
from certify.chat_templates import TEMPLATES, save_tokenizer
from certify.checks import check
from certify.cstar import EXPORTS, difficult_cstar, export_all
from certify.environments import NotInstalledError
from certify.promise import byte_pieces


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizers")
    for name, template in {"plain": None, **TEMPLATES}.items():
        save_tokenizer(folder / name, template)
    return folder


def test_cases_have_an_expectation_for_every_row_of_their_file(tokenizers: Path, tmp_path: Path) -> None:
    files = Files(tmp_path / "exports", tokenizers)
    export_all(difficult_cstar(tmp_path / "data", documents=2), files.exports, files.tokenizers)
    cases = list(cases_of(files))
    assert {case.loader for case in cases} == set(LOADERS)
    assert {case.file for case in cases} == set(EXPORTS)
    # six difficult texts and two documents; in one of them a call stands within a word, so it has no conversation
    assert {len(case.expected) for case in cases} == {8, 7}
    json.dumps([case.job(files) for case in cases])
    # The rows of `tokens` are what is promised of them, from spans and bytes alone.
    from transformers import AutoTokenizer

    case = next(case for case in cases if case.by == "Trainer")
    pieces = byte_pieces(AutoTokenizer.from_pretrained(tokenizers / "plain"))
    found = check(case.expected, {"rows": files.rows("tokens.jsonl"), "error": ""}, pieces, frozenset())
    assert (found.rows_read, found.failure) == (8, "")


def test_only_what_must_be_there_fails_where_it_cannot_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(key: str, folder: Path) -> Path:
        raise NotInstalledError(f"no index has {key}")

    monkeypatch.setattr(command, "environment", no_network)
    rows = [row for loader in LOADERS for row in command._rows_of(loader, Files(tmp_path, tmp_path), tmp_path)]
    assert [(row.loader, row.fails) for row in rows] == [
        *(("datasets", True), ("trl", True)),
        *(("axolotl", False), ("llamafactory", False)),
    ]
    assert rows[2].result == "not installed: no index has axolotl"
    assert rows[2].version
