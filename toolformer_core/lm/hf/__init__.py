"""The transformers backend. The plain computation that it must agree with stands in `tests/support/plain_lm.py`."""
