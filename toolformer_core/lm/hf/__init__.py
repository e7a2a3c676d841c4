"""The transformers backend: the engine, and the plain computation that it must agree with."""
