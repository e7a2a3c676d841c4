"""The published files themselves, where somebody has them: `TOOLFORMER_BENCHMARK_DATA` names their folder."""

import os
import random
from pathlib import Path

import pytest

from toolformer_core.evaluate.items import Item, RejectedRow
from toolformer_core.evaluate.scoring import is_right
from toolformer_core.evaluate.tasks import read, task_named

FOLDER = os.environ.get("TOOLFORMER_BENCHMARK_DATA")
pytestmark = pytest.mark.skipif(not FOLDER, reason="TOOLFORMER_BENCHMARK_DATA names no folder of published files")

# Task, path in the folder, items, lines rejected.
FILES = [
    ("svamp", "math/SVAMP.json", 1_000, []),
    ("gsm8k", "math/gsm8k.test.jsonl", 1_319, []),
    ("nq", "qa/NQ-open.dev.jsonl", 3_608, [291, 364]),  # answers "---" and ")"
    ("webqs", "qa/webquestions.test.json", 2_032, []),
    ("lama-trex", "lama/trex_triples", 29_411, []),
    ("mlqa-es", "mlqa", 500, []),
    ("mlqa-de", "mlqa", 512, []),
    ("mlqa-hi", "mlqa", 507, []),
    ("mlqa-vi", "mlqa", 511, []),
    ("mlqa-zh", "mlqa", 504, []),
    ("mlqa-ar", "mlqa", 517, []),
]


@pytest.mark.parametrize(("name", "path", "count", "rejected"), FILES, ids=[f[0] for f in FILES])
def test_a_published_file(name, path, count, rejected):
    task = task_named(name)
    every = list(read(task, Path(FOLDER) / path))
    items = [x for x in every if isinstance(x, Item)]
    assert len(items) == len({item.item_id for item in items}) == count
    assert [x.line for x in every if isinstance(x, RejectedRow)] == rejected
    assert all(is_right(task, item, f" {answer}.") for item in items for answer in item.answers)
    others = random.Random(0).sample(items, len(items))
    right = sum(is_right(task, a, f" {b.answers[0]}.") for a, b in zip(items, others, strict=True))
    assert right / count < 0.03  # small whole numbers often agree by chance


@pytest.mark.parametrize("path", ["lm/wikitext2.test.raw.txt", "lm/wikitext2.valid.txt"])
def test_wikitext_has_sixty_articles(path):
    file = Path(FOLDER) / path
    articles = list(read(task_named("perplexity"), file))
    assert len(articles) == 60
    # nothing but blank lines between articles is lost
    kept = sum(len(line) for article in articles for line in article.prompt.split("\n") if line.strip())
    assert kept == sum(len(line) for line in file.read_text("utf-8").split("\n") if line.strip())
