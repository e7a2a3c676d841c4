"""Readers of benchmark files: one module per family of benchmarks."""
