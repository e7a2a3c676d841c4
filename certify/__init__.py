"""`make certify`: the trainers' own loaders read our exports, and train on the tokens that were promised.

cstar           a small C* of the embedded corpus and some difficult texts, in a store, exported in every format
chat_templates  three chat templates (`templates/`), written a second time in Python, and their calls read back
promise         what is trained of a row: stretches of text, and from them the label of every token
cases           which loader reads which file, and what it is to give
environments    a virtual environment for each loader, from `requirements/`
checks          what a loader gave, against what was promised
programs/       one program a loader, which runs in that loader's environment: it knows files and templates alone
"""
