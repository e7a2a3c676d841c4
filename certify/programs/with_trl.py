"""Reads exports with TRL's SFTTrainer and with the plain Trainer, up to the batches that their models would get."""

import tempfile
from typing import Any

from jobs import answer_jobs, rows_of_batch
from tiny import load_tokenizer, tiny_model


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of the evaluation batches, which keep the order of the file."""
    from datasets import disable_progress_bars, load_dataset, load_from_disk
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments
    from trl import SFTConfig, SFTTrainer

    disable_progress_bars()
    tokenizer = load_tokenizer(job["tokenizer"])
    model = tiny_model(tokenizer)
    if job["how"] == "folder":
        rows = load_from_disk(job["file"])
    else:
        mixed = {"on_mixed_types": "use_json"} if job["mixed"] else {}
        rows = load_dataset("json", data_files=job["file"], split="train", **mixed)
    with tempfile.TemporaryDirectory() as out:
        common = {"output_dir": out, "report_to": "none", "use_cpu": True, "per_device_eval_batch_size": 4}
        if job["how"] == "trainer":
            trainer = Trainer(
                model,
                TrainingArguments(**common),
                data_collator=DataCollatorForSeq2Seq(tokenizer),
                train_dataset=rows,
                eval_dataset=rows,
            )
        else:
            # None: by default texts are cut to 1,024 tokens.
            settings = SFTConfig(**common, bf16=False, max_length=None, assistant_only_loss=job["how"] == "chat")
            trainer = SFTTrainer(model, settings, train_dataset=rows, eval_dataset=rows, processing_class=tokenizer)
        return {"rows": [row for batch in trainer.get_eval_dataloader() for row in rows_of_batch(batch)]}


if __name__ == "__main__":
    answer_jobs("trl", answer)
