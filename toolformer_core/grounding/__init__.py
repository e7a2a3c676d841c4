"""GEAR: which tool fits a query, chosen with a small model and without training.

patterns   kinds of word tokens and their priors      encoders   embeddings of queries and descriptions
scores     the formula, on numbers alone              small_lm   answers, calls and choices of a small LM
records    queries, scores and what they cost         library    tools with demonstrations and mock responses
ground     all of it together, many queries at a time baselines  other ways to choose
"""
