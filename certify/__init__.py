"""`make certify`: the trainers' own loaders read our exports, and train on the tokens that were promised.

`cases` say which loader reads which export of the C* of `cstar`, and what it is to give; `promise` and `chat_templates`
say what is trained of a row. `environments` makes a virtual environment for each loader, in which its program of
`programs/` runs, and `checks` compares.
"""
