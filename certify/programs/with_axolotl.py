"""Reads exports with axolotl: the preparation of a training's data, from the configuration to the batches."""

import tempfile
from typing import Any

from jobs import answer_jobs, collated_rows
from tiny import load_tokenizer


def answer(job: dict[str, Any]) -> dict[str, Any]:
    from axolotl.utils.collators import DataCollatorForSeq2Seq
    from axolotl.utils.data import prepare_datasets
    from axolotl.utils.dict import DictDefault

    tokenizer = load_tokenizer(job["tokenizer"])
    with tempfile.TemporaryDirectory() as out:
        settings = {
            "datasets": [{"path": job["file"], "ds_type": "json", "type": job["how"] or None, **job["more"]}],
            "dataset_prepared_path": out,
            "train_on_inputs": False,
            "sequence_len": 8192,  # longer rows would be left out
            "shuffle_merged_datasets": False,
            "val_set_size": 0,
            "dataset_num_proc": 1,
            "num_epochs": 1,
            "micro_batch_size": 4,
            "gradient_accumulation_steps": 1,
            "batch_size": 4,
            "world_size": 1,
            "seed": 0,
        }
        rows, *_ = prepare_datasets(DictDefault(settings), tokenizer)
        return {"rows": collated_rows(rows, DataCollatorForSeq2Seq(tokenizer))}


if __name__ == "__main__":
    answer_jobs("axolotl", answer)
