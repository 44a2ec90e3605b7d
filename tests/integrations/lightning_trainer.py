"""A small model in Lightning's Trainer; each rank writes what a test reads.

    farandole run -np 2 lightning_trainer.py FOLDER STRATEGY BATCHES

A step sees all rows: on each rank in BATCHES batches.
"""

import json
import sys
from pathlib import Path

import farandole_torch.lightning as farandole_lightning
import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

ROWS = 64


def rows():
    inputs = torch.sin(torch.arange(ROWS * 4.0)).reshape(ROWS, 4).double()
    return torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))


class Model(lightning.LightningModule):
    def __init__(self, rank):
        super().__init__()
        torch.manual_seed(7 + rank)  # rank 0's parameters are those of all
        self.layer = torch.nn.Linear(4, 1).double()
        self.seen = set()

    def training_step(self, batch, index):
        self.seen |= set(batch[0][:, 0].tolist() if self.current_epoch == 0 else [])
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def validation_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss, sync_dist=True)
        self.log("rank", float(self.global_rank), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main(folder, strategy, batches):
    saved = ModelCheckpoint(dirpath=folder, filename="{epoch}", save_top_k=-1)
    trainer = lightning.Trainer(
        strategy=strategy,
        accelerator="cpu",
        devices=1,
        max_epochs=4,
        accumulate_grad_batches=batches,
        gradient_clip_val=0.5,
        callbacks=[saved, EarlyStopping("loss", patience=5)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    model = Model(trainer.global_rank)
    train = torch.utils.data.DataLoader(rows(), batch_size=ROWS // trainer.world_size // batches, shuffle=True)
    validate = torch.utils.data.DataLoader(rows(), batch_size=16)
    trainer.fit(model, train, validate)
    result = {
        "size": trainer.world_size,
        "weights": [*model.layer.weight[0].tolist(), model.layer.bias.item()],
        "loss": trainer.callback_metrics["loss"].item(),
        "mean rank": trainer.callback_metrics["rank"].item(),
        "rows of the first epoch": len(model.seen),
        "backend": torch.distributed.get_backend() if torch.distributed.is_initialized() else "",
        "files": sorted(path.name for path in Path(folder).glob("*.ckpt")),
        "again": trainer.validate(model, validate, ckpt_path=saved.best_model_path, verbose=False)[0]["loss"],
    }
    Path(folder, f"{trainer.global_rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    assert "FarandoleStrategy" in farandole_lightning.__all__  # the import makes the name "farandole" known
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
