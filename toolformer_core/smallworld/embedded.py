"""Where the embedded defaults lie: model, corpus and passages of the small world. Paths only, nothing is loaded."""

from __future__ import annotations

from pathlib import Path

__all__ = ["ASSETS", "CORPUS", "MODEL", "PASSAGES"]

ASSETS = Path(__file__).with_name("assets")
MODEL = ASSETS / "model"
CORPUS = ASSETS / "corpus.jsonl.gz"
PASSAGES = ASSETS / "passages.jsonl.gz"
