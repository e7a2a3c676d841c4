import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tiny_checkpoints import save_nllb, save_span_model
from toolformer_core.config import TOOL_NAMES
from toolformer_core.errors import UnknownNameError, UsageError
from toolformer_core.records import ToolResponse
from toolformer_core.tools.base import BatchTool, Tool
from toolformer_core.tools.build import ToolSettings, build_tools
from toolformer_core.tools.hf.checkpoint import find_checkpoint
from toolformer_core.tools.mt import MT
from toolformer_core.tools.qa import QA
from toolformer_core.tools.qa_readers.spans import SpanReader
from toolformer_core.tools.search.index_writer import build_index
from toolformer_core.tools.search.passage_sources import open_source
from toolformer_core.tools.search.passages import PassageIndex
from toolformer_core.tools.search.search_index import SearchIndex
from toolformer_core.tools.translators.models import M2M100Translator
from toolformer_core.tools.wikisearch import WikiSearch


@pytest.fixture
def passages(tmp_path: Path) -> Path:
    path = tmp_path / "p.jsonl"
    path.write_text('{"title": "Velden", "text": "The mayor of Velden is Tora Lind."}\n', encoding="utf-8")
    return path


PAPER = build_tools(list(TOOL_NAMES))
WORDS = "der Hund le chat noir l'eau L’EAU the 7 + * ( ) % , es un - ' \" Who is [ ] AND 2023-01-30".split()
ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.lists(st.sampled_from(WORDS)).map(" ".join)


@pytest.mark.parametrize("key", TOOL_NAMES)
@given(ANY_TEXT, ANY_TEXT)
def test_any_text_is_answered_or_refused(key: str, text: str, context: str) -> None:
    result = PAPER[key].run(text, context)
    assert result.text if isinstance(result, ToolResponse) else result.reason


def test_all_five_tools_are_built_by_key(passages: Path) -> None:
    tools: dict[str, Tool] = build_tools(list(TOOL_NAMES), ToolSettings(passages=passages))
    assert [(key, tool.key, tool.name) for key, tool in tools.items()] == [(k, k, n) for k, n in TOOL_NAMES.items()]
    assert len({tool.fingerprint for tool in tools.values()}) == 5
    assert all(tool.description.endswith(".") for tool in tools.values())
    assert tools["wikisearch"].index is tools["qa"].index  # type: ignore[attr-defined]


def test_tools_built_one_by_one_share_an_index_until_the_file_changes(passages: Path) -> None:
    def index_of(key: str) -> PassageIndex:
        index = build_tools([key], ToolSettings(passages=passages))[key].index  # type: ignore[attr-defined]
        assert isinstance(index, PassageIndex)
        return index

    before = index_of("wikisearch")
    assert index_of("qa") is before
    passages.write_text('{"title": "Velden", "text": "The mayor of Velden is Olaf Brun."}\n', encoding="utf-8")
    after = index_of("qa")
    assert after is not before
    assert after.digest == PassageIndex(passages).digest != before.digest


def test_an_index_takes_the_place_of_the_passages_and_is_opened_once(passages: Path, tmp_path: Path) -> None:
    build_index(open_source(passages), tmp_path / "index")
    settings = ToolSettings(passages=tmp_path / "index")
    wikisearch, qa = build_tools(["wikisearch", "qa"], settings).values()
    assert isinstance(wikisearch, WikiSearch)
    assert wikisearch.index is build_tools(["qa"], settings)["qa"].index  # type: ignore[attr-defined]
    assert wikisearch.fingerprint == WikiSearch(SearchIndex(tmp_path / "index")).fingerprint
    assert qa.run("Who is the mayor of Velden?") == ToolResponse("Tora Lind")


def test_a_tool_that_is_named_and_not_built_is_an_error_and_no_other_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOOL_NAMES, "calculators", "Calculators")  # as whoever adds a tool does first
    with pytest.raises(UnknownNameError, match=r"unknown tool 'calculators'\. Did you mean 'calculator'\?.*qa"):
        build_tools(["calculators"])


def test_missing_data_is_an_error_before_the_run_of_what_needs_it(tmp_path: Path) -> None:
    tools = build_tools(["Calendar", "calculator"], ToolSettings(passages=tmp_path / "none"))
    assert list(tools) == ["calendar", "calculator"]
    with pytest.raises(UsageError, match="no passages file at"):
        build_tools(["qa"], ToolSettings(passages=tmp_path / "none.jsonl"))
    with pytest.raises(UsageError, match=r"no search index in .*; make one: toolformer index wikipedia"):
        build_tools(["wikisearch"], ToolSettings(passages=tmp_path))
    with pytest.raises(UsageError, match="cannot read the phrase table"):
        build_tools(["mt"], ToolSettings(translator=str(tmp_path / "none.tsv")))


def test_engines_are_chosen_by_name(passages: Path, tmp_path: Path) -> None:
    save_span_model(tmp_path / "bert", ["velden"])
    save_nllb(tmp_path / "nllb", ["der hund", "the dog"], ["eng_Latn", "deu_Latn"])
    settings = ToolSettings(passages, qa_reader=str(tmp_path / "bert"), translator=str(tmp_path / "nllb"))
    qa, mt = build_tools(["qa", "mt"], settings).values()
    assert isinstance(qa, QA)
    assert isinstance(qa.reader, SpanReader)
    assert isinstance(mt, MT)
    assert isinstance(mt.translator, M2M100Translator)
    assert hash(settings) == hash(pickle.loads(pickle.dumps(settings)))
    for tool in (qa, mt):
        assert isinstance(tool, BatchTool)
        tool.load()
    named = build_tools(["qa", "mt"], ToolSettings(passages, qa_reader="embedded"))
    plain = [tool.fingerprint for tool in build_tools(["qa", "mt"], ToolSettings(passages)).values()]
    assert [tool.fingerprint for tool in named.values()] == plain
    assert {qa.fingerprint, mt.fingerprint}.isdisjoint(plain)


def test_engines_that_cannot_be_used_are_errors_before_the_run(passages: Path) -> None:
    for name, settings in (
        ("qa", ToolSettings(passages, qa_reader="org/never-downloaded")),
        ("mt", ToolSettings(translator="org/never-downloaded")),
    ):
        with pytest.raises(UsageError, match="no folder 'org/never-downloaded', and it is neither in the hub's cache"):
            build_tools([name], settings)
    with pytest.raises(UsageError, match="does not name a server and a model"):
        build_tools(["qa"], ToolSettings(passages, qa_reader="http://127.0.0.1:8000/v1"))


def test_a_hub_name_is_known_by_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    commit = "0123456789abcdef0123456789abcdef01234567"
    cached = tmp_path / "models--org--bert"
    save_span_model(cached / "snapshots" / commit, ["velden"])
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub._snapshot_download.constants.HF_HUB_CACHE", str(tmp_path))
    found = find_checkpoint("org/bert")
    assert (found.commit, found.folder) == (commit, cached / "snapshots" / commit)
    assert found.digest != find_checkpoint(str(found.folder)).digest
    SpanReader("org/bert").load()
    (found.folder / "model.safetensors").unlink()
    with pytest.raises(UsageError, match="org/bert"):
        find_checkpoint("org/bert")
