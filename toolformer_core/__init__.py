"""Toolformer as a plain library: annotate a corpus with tool calls, keep the ones that help.

This package is the method and nothing else. It does not know Prefect, DuckDB or MLflow, does not read the
environment, and importing it does nothing; it runs on a machine that has only torch and transformers.
"""

__version__ = "0.1.0"
