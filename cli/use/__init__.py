"""Commands that use a model; they report mistakes before it is loaded."""
