"""Paths of the embedded defaults: model, corpus and passages of the small world. Nothing is loaded here."""

from pathlib import Path

ASSETS = Path(__file__).with_name("assets")
MODEL = ASSETS / "model"
CORPUS = ASSETS / "corpus.jsonl.gz"
CHAIN_PASSAGES = ASSETS / "chains-passages.jsonl.gz"  # what the items of small-world-chains ask about
