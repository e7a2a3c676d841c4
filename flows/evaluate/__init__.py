"""The flow `evaluate`: a benchmark put to a model's arms."""
