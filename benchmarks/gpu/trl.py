"""TRL's own GRPO loss on the same tokens, a group at a time, and one step of the same optimiser; nothing generated."""

from __future__ import annotations

import tempfile

import torch
from torch.nn.utils.rnn import pad_sequence

from benchmarks.gpu.shapes import Packed, Size, new_model
from benchmarks.gpu.timing import Update
from benchmarks.shared.batches import alternating
from benchmarks.shared.materials import word_tokenizer


def trl_update(size: Size, batch: Packed, device: torch.device) -> Update:
    """Make an update of GRPOTrainer, which must be installed."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    groups = len(batch.lengths) // batch.group
    config = GRPOConfig(
        output_dir=f"{tempfile.gettempdir()}/rewardflow-bench-trl",
        per_device_train_batch_size=batch.group,
        num_generations=batch.group,
        max_completion_length=max(batch.lengths),
        bf16=True,
        gradient_checkpointing=False,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        use_cpu=device.type == "cpu",
        optim="adamw_torch_fused",
        learning_rate=1e-5,
        max_steps=1000,
        gradient_accumulation_steps=groups,
    )
    trainer = GRPOTrainer(
        model=new_model(size, batch.longest, device),
        args=config,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_dict({"prompt": ["w000001"]}),
        processing_class=word_tokenizer(min(size.vocabulary, 512)),
    )
    trainer.create_optimizer()
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = groups
    pairs = batch.pairs(size.vocabulary)
    prompts = torch.tensor([prompt for prompt, _ in pairs], device=device)
    completions = [torch.tensor(ids, device=device) for _, ids in pairs]
    advantages = torch.tensor(alternating(len(pairs)), device=device)

    def step() -> None:
        for start in range(0, len(pairs), batch.group):
            part = slice(start, start + batch.group)
            ids = completions[part]
            inputs = {
                "prompt_ids": prompts[part],
                "prompt_mask": torch.ones_like(prompts[part]),
                "completion_ids": pad_sequence(ids, batch_first=True),
                "completion_mask": pad_sequence([torch.ones_like(row) for row in ids], batch_first=True),
                "advantages": advantages[part],
                "num_items_in_batch": torch.tensor(sum(batch.lengths), device=device),
            }
            with trainer.compute_loss_context_manager():
                loss = trainer.compute_loss(trainer.model, inputs)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad(set_to_none=True)

    return Update(trainer.model, step, lambda: {"tokens": batch.padded_tokens(batch.group)})
