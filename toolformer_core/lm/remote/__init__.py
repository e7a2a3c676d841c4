"""The remote backend: a model behind a server, which scans, draws and scores; only its tokenizer is here."""
