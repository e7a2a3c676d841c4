"""LAMA and TempLAMA as published: small made-up files."""

from tests.core.evaluate.published.files import Format, lines

CLOZE = {
    "lama-squad": Format(
        "lama-squad",
        "Squad/test.jsonl",
        lines(
            {"masked_sentences": ["The old mill was built by [MASK] ."], "obj_label": "Ulric", "id": "s1"},
            {"masked_sentences": ["In [MASK] the mill burnt down."], "obj_label": "1850", "id": "s2"},
            {"masked_sentences": ["[MASK]"], "obj_label": "mill", "id": "s3"},
            {"masked_sentences": ["From [MASK] to [MASK]."], "obj_label": "mill", "id": "s4"},
            {"masked_sentences": ["Its owner is [MASK]"], "id": "s5"},
        ),
        [("Ulric",)],
        [(2, "mask_not_last"), (3, "mask_not_last"), (4, "mask_not_last"), (5, "no_obj_label")],
        ["factually correct: The old mill was built by"],
    ),
    "lama-google-re": Format(
        "lama-google-re",
        "Google_RE/place_of_birth_test.jsonl",
        lines(
            {
                "pred": "/people/person/place_of_birth",
                "sub_label": "Ulric Vane",
                "obj_label": "Tarn",
                "obj_aliases": ["Tarnby", "\U0001f1e8"],
                "uuid": "u1",
                "evidences": [{"snippet": "Ulric Vane was born in Tarn.", "considered_sentences": ["..."]}],
                "masked_sentences": ["Ulric Vane is a miller .", "He was born in [MASK] ."],
            },
            {"sub_label": "Ona", "obj_label": "Tarn", "uuid": "u2", "masked_sentences": ["Ona (born [MASK]) sang."]},
        ),
        [("Tarn", "Tarnby")],
        [(2, "mask_not_last")],
        ["Ulric Vane is a miller . He was born in"],
    ),
    "lama-trex": Format(
        "lama-trex",
        "TREx/P19.jsonl",
        lines(
            {
                "uuid": "t1",
                "sub_label": "Ulric Vane",
                "obj_label": "France",
                "predicate_id": "P27",
                "evidences": [
                    {"sub_surface": "Vane", "obj_surface": "French", "masked_sentence": "Vane, a [MASK] man, sang."},
                    {"sub_surface": "Vane", "obj_surface": "French", "masked_sentence": "Ulric Vane is [MASK]."},
                ],
            },
            {"sub_label": "Ona Reed", "obj_label": "Tarn", "uuid": "t2"},  # a triple: the relation is the file's
            {"sub_label": "Ona", "obj_label": "Tarn", "uuid": "t3", "template": "[X] came from [Y] ."},
            {"sub_label": "Ona", "obj_label": "Tarn", "uuid": "t4", "template": "[Y] is where [X] came from ."},
            {"uuid": "t1", "obj_label": "France", "predicate_id": "P27", "masked_sentence": "Vane sings in [MASK]"},
            {"obj_label": "Tarn", "uuid": "t6"},
        ),
        [("France", "French"), ("Tarn",), ("Tarn",)],
        [(4, "mask_not_last"), (5, "same_fact"), (6, "no_statement")],
        ["Ulric Vane is", "The birthplace of Ona Reed is", "Ona came from"],
    ),
    "templama": Format(
        "templama",
        "test.json",
        lines(
            {
                "query": "Ulric Vane plays for _X_.",
                "answer": [{"wikidata_id": "Q1", "name": "Tarn United"}, {"wikidata_id": "Q2", "name": "FC Reed"}],
                "date": "2012",
                "id": "Q9_P54_2012",
                "relation": "P54",
            },
            {"query": "_X_ is the chair of Reed.", "answer": [{"name": "Ona"}], "date": "2012", "id": "Q8_P488_2012"},
            {"query": "Ona plays for _X_.", "answer": [{"name": "Tarn United"}], "date": "once", "id": "Q7_P54_x"},
            {"query": "Ona plays for _X_.", "answer": [], "date": "2014", "id": "Q7_P54_2014"},
            {"query": "Ona plays for _X_.", "answer": [{"name": "FC Reed"}], "date": "2014-05-02", "id": "Q7_P54_2"},
        ),
        [("Tarn United", "FC Reed"), ("FC Reed",)],
        [(2, "mask_not_last"), (3, "no_date"), (4, "no_answer")],
        ["Ulric Vane plays for", "Ona plays for"],
        ["2012-07-01", "2014-05-02"],
    ),
}
