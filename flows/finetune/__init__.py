"""The flow `finetune`: a dataset version to a checkpoint."""
