"""Corpus files of every format as raw rows; `files` says which module reads which file."""
