"""The flow `recipe`: an experiment as one file, whose steps are the other flows."""
