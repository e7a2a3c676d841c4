"""How many documents a shard takes with `--shard-documents auto`, and that the same corpus gives the same number."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.options import filled
from flows.build_dataset.parameters import BuildParameters
from flows.build_dataset.resolve import resolve
from flows.build_dataset.shard_size import auto_shard_documents, documents_per_shard
from tests.support.small_builds import write_jsonl
from toolformer_core.config import IngestConfig
from toolformer_core.errors import UsageError

MANY = 10**9


def test_a_shard_is_some_tens_of_seconds_of_work_or_a_64th_of_the_documents() -> None:
    # 30 s / (0.05 + 130 * 50e-6 = 0.0565 s) = 531 documents; the power of two nearest to it is 512
    assert documents_per_shard(130, MANY) == 512
    assert documents_per_shard(2_000, MANY) == 256  # 30 / 0.15 = 200: log2 is 7.64
    assert documents_per_shard(20_000, MANY) == 32  # 30 / 1.05 = 28.6
    assert documents_per_shard(10**7, MANY) == 16  # no fewer
    assert documents_per_shard(130, 64 * 512) == 512
    assert documents_per_shard(130, 64 * 512 - 1) == 256
    assert documents_per_shard(130, 10_000) == 128  # 10,000 / 128 = 78 shards; with 256 there would be 39
    assert documents_per_shard(130, 5) == 16


@given(st.floats(0, 1e8), st.floats(0, 1e8), st.integers(1, MANY))
def test_longer_documents_and_fewer_documents_never_make_larger_shards(one: float, other: float, many: int) -> None:
    shorter, longer = sorted((one, other))
    assert documents_per_shard(longer, many) <= documents_per_shard(shorter, many)
    assert documents_per_shard(shorter, many) <= documents_per_shard(shorter, 2 * many)


def test_the_corpus_alone_decides(tmp_path: Path) -> None:
    # 4 texts of 10 characters: fewer than are sampled, so there are 4 documents
    short = str(write_jsonl(tmp_path / "short.jsonl", ["ten chars!"[:9] + str(n) for n in range(4)]))
    assert auto_shard_documents(short, "d1", IngestConfig()) == 16
    # 600 texts of 900 characters, 0.54 MB: 30 / 0.095 = 316 -> 256; 600 / 16 = 38 shards are the most there can be
    longer = str(write_jsonl(tmp_path / "longer.jsonl", [f"{n:0900}" for n in range(600)]))
    assert auto_shard_documents(longer, "d2", IngestConfig()) == 16
    # 20,000 texts of 100 characters, in lines of 113 bytes: 22,600 documents are estimated; 30 / 0.055 = 545 -> 512,
    # with which there would be 44 shards; with 256 there are 88
    many = str(write_jsonl(tmp_path / "many.jsonl", [f"{n:0100}" for n in range(20_000)]))
    assert auto_shard_documents(many, "d3", IngestConfig()) == 256
    assert auto_shard_documents(many, "d3", IngestConfig(limit=2_000)) == 16  # 2,000 / 32 = 62.5 shards, too few
    assert auto_shard_documents(many, "d3", IngestConfig(shard_documents=7)) == 256
    assert (
        auto_shard_documents(str(write_jsonl(tmp_path / "c.jsonl", [" "])), "d4", IngestConfig()) == 256
    )  # no document


def test_a_build_resolves_auto_once_and_the_same_every_time(tmp_path: Path) -> None:
    corpus = str(write_jsonl(tmp_path / "c.jsonl", [f"{n:0100}" for n in range(20_000)]))
    asked = BuildParameters(corpus=corpus, data=str(tmp_path / "d"), shard_documents="auto", workers=2)
    assert resolve(asked).ingest.shard_documents == 256
    given = BuildParameters(corpus=corpus, data=str(tmp_path / "d"), shard_documents=256, workers=8)
    assert resolve(asked).ingest == resolve(given).ingest


def test_the_option_takes_a_number_or_auto() -> None:
    def given(text: str) -> int | str:
        return filled(BuildParameters, corpus="c", data="d", shard_documents=text, tool=[]).shard_documents

    assert (given("512"), given("auto")) == (512, "auto")
    for wrong in ("0", "-1", "1.5", "Auto", ""):
        with pytest.raises(UsageError, match=r"--shard-documents: .* is neither a number of documents, at least 1"):
            given(wrong)
