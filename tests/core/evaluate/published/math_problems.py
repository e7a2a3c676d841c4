"""ASDiv, SVAMP, MAWPS and GSM8K as published: small made-up files."""

import json

from tests.core.evaluate.published.files import Format, lines

_ASDIV = """<?xml version="1.0" encoding="UTF-8"?>
<Machine-Reading-Corpus-File>
\t<ProblemSet>
\t\t<Problem ID="toy-0001" Grade="1" Source="https://example.org">
\t\t\t<Body>Ana has six nuts &amp; two figs.</Body>
\t\t\t<Question>How many things has Ana?</Question>
\t\t\t<Solution-Type>Addition</Solution-Type>
\t\t\t<Answer>8 (things)</Answer>
\t\t\t<Formula>6+2=8</Formula>
\t\t</Problem>
\t\t<Problem ID="toy-0002" Grade="6" Source="https://example.org">
\t\t\t<Body>A bowl holds 66 nuts, 6 of them salted.</Body>
\t\t\t<Question>What is the ratio of plain to salted nuts?</Question>
\t\t\t<Solution-Type Subgoal-1="Subtraction">Ratio</Solution-Type>
\t\t\t<Answer>10:1</Answer>
\t\t</Problem>
\t\t<Problem ID="toy-0003" Grade="6" Source="https://example.org">
\t\t\t<Body>Broken <Question>Where does it end?</Question>
\t\t<Problem ID="toy-0004" Grade="6" Source="https://example.org">
\t\t\t<Body>Two of eight doors are red.</Body>
\t\t\t<Question>Which part of the doors is red?</Question>
\t\t\t<Answer>1/4</Answer>
\t\t</Problem>
\t\t<Problem ID="toy-0005"><Body>Nothing is asked.</Body><Answer>3</Answer></Problem>
\t</ProblemSet>
</Machine-Reading-Corpus-File>
"""

MATH = {
    "asdiv": Format(
        "asdiv",
        "ASDiv.xml",
        _ASDIV,
        [("8",), ("1/4",)],
        [(11, "not_one_number"), (17, "broken_xml"), (24, "no_question")],
        ["Ana has six nuts & two figs. How many things has Ana? The answer is"],
    ),
    "asdiv-hub": Format(
        "asdiv",
        "asdiv.jsonl",
        lines(
            {
                "body": "Ana has 3 nuts.",
                "question": "How many?",
                "answer": "3 (nuts)",
                "solution_type": "Sum",
                "formula": "",
            },
            {"body": "Two shops.", "question": "Which one?", "answer": "Shop 2", "solution_type": "Comparison"},
        ),
        [("3",)],
        [(2, "not_one_number")],
    ),
    "svamp": Format(
        "svamp",
        "SVAMP.json",
        """[
    {
        "ID": "toy-1",
        "Body": "Each box costs 64 coins. If 20 coins are taken off",
        "Question": "How much is a box?",
        "Equation": "( 64.0 - 20.0 )",
        "Answer": 44.0,
        "Type": "Subtraction"
    },
    {
        "ID": "toy-2",
        "Body": "Each box holds 7 nuts",
        "Answer": 7.0
    },
    "no row",
    {"ID": "toy-3", "Body": "A third", "Question": "of ten is?", "Answer": 3.3333333333333335, "Type": "Division"},
    {"ID": "toy-4", "Body": "x", "Question": "y?", "Answer": NaN},
    {"ID": "toy-5", "Body" "broken"},
    {"ID": "toy-6", "Body": "x", "Question": "y?", "Answer": 1}
]
""",
        [("44",), ("3.333333",), ("1",)],
        [(10, "no_question"), (15, "not_an_object"), (17, "not_one_number"), (18, "broken_json")],
        ["Each box costs 64 coins. If 20 coins are taken off How much is a box? The answer is"],
    ),
    "mawps": Format(
        "mawps",
        "SingleOp.json",
        json.dumps(
            [
                {"iIndex": 1, "sQuestion": "Two and 5 ?", "lEquations": ["X=2+5"], "lSolutions": [7.0]},
                {"iIndex": 2, "sQuestion": "Two lines ?", "lEquations": ["X=1", "Y=2"], "lSolutions": [1.0, 2.0]},
                {"iIndex": 3, "lEquations": ["X=1"], "lSolutions": [1.0]},
                {"iIndex": 1, "sQuestion": "Six and 5 ?", "lEquations": ["X=6+5"], "lSolutions": [11.0]},
            ],
            indent=2,
        ),
        [("7",), ("11",)],
        [(12, "not_one_number"), (24, "no_squestion")],
        ["Two and 5 ? The answer is"],
    ),
    "mawps-hub": Format(
        "mawps",
        "mawps.jsonl",
        lines(
            {"id": "m1", "question": "Two and 5?", "chain": "...", "result": "7", "result_float": 7.0},
            {"Question": "N_00 and number1 ?", "Numbers": "8 2.0", "Equation": "+ N_00 N_01", "Answer": 10.0},
            {"Question": "N_00 and N_02 ?", "Numbers": "8 2", "Equation": "+ N_00 N_01", "Answer": 10.0},
            {"id": "m4", "original_text": "Half of 5 ?", "segmented_text": "", "equation": "x=5/2", "ans": 2.5},
        ),
        [("7",), ("10",), ("2.5",)],
        [(3, "no_number")],
        ["Two and 5? The answer is", "8 and 2 ? The answer is"],
    ),
    "mawps-fold": Format(
        "mawps",
        "mawps_fold0_test.orig.jsonl",
        lines(
            {
                "id": 3,
                "text": "N_0 and N_1 ?",
                "original": {"iIndex": 7, "sQuestion": "Two and 5 ?", "lEquations": ["X=2+5"], "lSolutions": [7.0]},
            },
            {"id": 4, "text": "N_0 ?", "original": {"iIndex": 8, "sQuestion": "Two ?", "lSolutions": [1.0, 2.0]}},
            {"id": 5, "original": "no object"},
        ),
        [("7",)],
        [(2, "not_one_number"), (3, "no_squestion")],
        ["Two and 5 ? The answer is"],
    ),
    "gsm8k": Format(
        "gsm8k",
        "test.jsonl",
        lines(
            {"question": "Two and three?", "answer": "2 + 3 = <<2+3=5>>5\n#### 5"},
            {"question": "Much?", "answer": "It is.\n#### 1,234"},
            {"question": "Less?", "answer": "It is.\n#### -3"},
            {"question": "None?", "answer": "It is 5."},
            {"question": "Some?", "answer": "It is.\n#### some"},
            '{"question": "cut',
            '["no", "object"]',
        ),
        [("5",), ("1234",), ("-3",)],
        [(4, "no_answer"), (5, "not_one_number"), (6, "broken_json"), (7, "not_an_object")],
        ["Two and three? The answer is"],
    ),
}
