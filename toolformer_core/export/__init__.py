"""C* in the forms that trainers read: pure functions of examples, tokenizers and tools; no files, no stores."""
