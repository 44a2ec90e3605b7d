"""A tiny BERT of random weights in Hugging Face's Trainer; each rank writes what a test reads.

    farandole run -np 2 hf_trainer.py FOLDER BACKEND BATCHES

A step sees all rows: on each rank in BATCHES batches.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

ROWS = 32


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return {"input_ids": torch.arange(index, index + 6) % 50, "labels": torch.tensor(index % 2)}


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())}


def loss_of(outputs, labels, num_items_in_batch=None):
    """Of all ranks' rows: Trainer multiplies by the number of ranks, also a loss of BERT that is a mean already."""
    total = torch.nn.functional.cross_entropy(outputs["logits"], labels, reduction="sum")
    return total / (len(labels) if num_items_in_batch is None else num_items_in_batch)


def parameters_of(model):
    return torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def main(folder, backend, batches):
    if backend:
        torch.distributed.init_process_group(backend)  # the line that selects Farandole on CPUs
    size = torch.distributed.get_world_size() if backend else 1
    arguments = TrainingArguments(
        output_dir=str(Path(folder, "output")),
        use_cpu=True,
        per_device_train_batch_size=ROWS // size // batches,
        gradient_accumulation_steps=batches,
        num_train_epochs=3,
        optim="sgd",  # AdamW divides by gradients near 0, which makes much of the loss's rounding in float32
        learning_rate=1.0,
        eval_strategy="epoch",
        save_strategy="epoch",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=7,
    )
    torch.manual_seed(7 + arguments.process_index)  # rank 0's parameters are those of all
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=50, hidden_dropout_prob=0, attention_probs_dropout_prob=0, **shape)
    model = BertForSequenceClassification(config).double()
    rows = {"train_dataset": Rows(), "eval_dataset": Rows()}
    trainer = Trainer(model, arguments, compute_loss_func=loss_of, compute_metrics=accuracy, **rows)
    before = parameters_of(model)
    trainer.train()
    measured = trainer.evaluate()
    result = {
        "size": arguments.world_size,
        "mode": arguments.parallel_mode.value,
        "weights": parameters_of(model).tolist(),
        "moved by": (parameters_of(model) - before).abs().max().item() if arguments.process_index == 0 else 1,
        "steps": trainer.state.global_step,
        "loss": measured["eval_loss"],
        "accuracy": measured["eval_accuracy"],
        "files": sorted(path.name for path in Path(folder, "output").iterdir()),
        "backend": torch.distributed.get_backend() if torch.distributed.is_initialized() else "",
    }
    Path(folder, f"{arguments.process_index}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
