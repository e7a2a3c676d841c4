"""The small world: generates the embedded corpus and trains the embedded model. Nothing in the product imports it."""
