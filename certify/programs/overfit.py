"""Trains a tiny model with random weights on eight rows until it knows them, and lets it write their calls.

Chats are trained with TRL's SFTTrainer on the assistant's turns alone, rows of tokens with the plain Trainer. The model
then writes from what stands in front of each call. Whether what it writes is a call is not judged here.
"""

from __future__ import annotations

import json
import tempfile
from typing import Any

from jobs import answer_jobs
from tiny import load_tokenizer, tiny_model

_NEW_TOKENS = 160


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Train on the rows of a file; return what is written behind each prompt, the steps and the last loss."""
    import torch
    from datasets import disable_progress_bars, load_dataset
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainerCallback, TrainingArguments
    from trl import SFTConfig, SFTTrainer

    disable_progress_bars()
    torch.set_num_threads(2)
    tokenizer = load_tokenizer(job["tokenizer"])
    model = tiny_model(tokenizer, width=64, layers=2)
    rows = load_dataset("json", data_files=job["file"], split="train")

    class Stop(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and logs.get("loss", job["loss"]) < job["loss"]:
                control.should_training_stop = True

    with tempfile.TemporaryDirectory() as out:
        common = {
            "output_dir": out,
            "report_to": "none",
            "use_cpu": True,
            "max_steps": job["steps"],
            "per_device_train_batch_size": 8,
            "learning_rate": 3e-3,
            "warmup_steps": 10,
            "lr_scheduler_type": "constant_with_warmup",
            "logging_steps": 5,
            "save_strategy": "no",
            "disable_tqdm": True,
            "seed": 0,
        }
        if job["how"] == "chat":
            settings = SFTConfig(
                **common, bf16=False, max_length=None, assistant_only_loss=True, gradient_checkpointing=False
            )
            trainer = SFTTrainer(model, settings, train_dataset=rows, processing_class=tokenizer, callbacks=[Stop()])
        else:
            trainer = Trainer(
                model,
                TrainingArguments(**common),
                data_collator=DataCollatorForSeq2Seq(tokenizer),
                train_dataset=rows,
                callbacks=[Stop()],
            )
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    model.eval()

    def written(prompt: list[int]) -> list[int]:
        with torch.inference_mode():
            ids = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt)),
                do_sample=False,
                max_new_tokens=_NEW_TOKENS,
            )
        return list(ids[0, len(prompt) :].tolist())

    prompts = _chat_prompts(tokenizer, rows) if job["how"] == "chat" else job["prompts"]
    outputs = [written(prompt) for prompt in prompts]
    return {
        "rows": [],
        "written": [tokenizer.decode(ids) for ids in outputs],
        "parsed": _parsed(tokenizer, job.get("parser", ""), prompts, outputs),
        "steps": trainer.state.global_step,
        "loss": losses[-1],
    }


def _parsed(tokenizer: Any, parser: str, prompts: list[list[int]], outputs: list[list[int]]) -> list[Any]:
    """Return name and arguments of the calls that a parser of TRL's finds, a list for each output; "" is no parser."""
    if not parser:
        return []
    from trl import chat_template_utils

    tokenizer.response_template = getattr(chat_template_utils, parser)
    pairs = zip(prompts, outputs, strict=True)
    messages = [chat_template_utils.parse_response(tokenizer, ids, prefix=prompt) for prompt, ids in pairs]
    found = [[call["function"] for call in message.get("tool_calls", [])] for message in messages]
    return [[[function["name"], function["arguments"]] for function in functions] for functions in found]


def _chat_prompts(tokenizer: Any, rows: Any) -> list[list[int]]:
    """Return what the template writes in front of each turn with a call."""
    return [
        tokenizer.apply_chat_template(
            row["messages"][:turn], tools=json.loads(row["tools"]), add_generation_prompt=True, return_dict=False
        )
        for row in rows
        for turn, message in enumerate(row["messages"])
        if message.get("tool_calls")
    ]


if __name__ == "__main__":
    answer_jobs("trl", answer)
