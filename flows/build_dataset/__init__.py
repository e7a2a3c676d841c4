"""The flow `build-dataset`: corpus to C*; its parameters, its plan, and the summary of its result."""
