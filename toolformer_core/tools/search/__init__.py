"""Passages and their search: read from files, indexed in memory or on disk, found by BM25."""
