"""The flow `build-dataset`: corpus to C*; what may be asked of it, its plan, and what is said of its result."""
