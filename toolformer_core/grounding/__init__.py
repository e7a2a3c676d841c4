"""GEAR: which tool fits a query, chosen with a small model and without training.

patterns   kinds of word tokens and their priors      encoders   embeddings of queries and descriptions
records    queries, scores (the formula), costs       small_lm   answers, calls and choices of a small LM
ground     all of it together, many queries at a time library    tools with demonstrations and mock responses
baselines  other ways to choose
"""
