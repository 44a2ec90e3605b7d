"""A training loop of one's own with Lightning's Fabric; each rank writes what a test reads.

    farandole run -np 2 fabric_loop.py FOLDER STRATEGY BATCHES

A step sees all rows: on each rank in BATCHES batches.
"""

import json
import sys
from pathlib import Path

import farandole_torch.lightning as farandole_lightning
import lightning
import torch

ROWS = 64


def main(folder, strategy, batches):
    fabric = lightning.Fabric(strategy=strategy, accelerator="cpu", devices=1)
    fabric.launch()
    torch.manual_seed(7 + fabric.global_rank)  # rank 0's parameters are those of all
    model = torch.nn.Linear(4, 1).double()
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.05))
    inputs = torch.sin(torch.arange(ROWS * 4.0)).reshape(ROWS, 4).double()
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = fabric.setup_dataloaders(
        torch.utils.data.DataLoader(data, batch_size=ROWS // fabric.world_size // batches, shuffle=True)
    )
    for _ in range(4):
        for index, (some, targets) in enumerate(loader):
            with fabric.no_backward_sync(model, enabled=index < batches - 1):
                fabric.backward(torch.nn.functional.mse_loss(model(some), targets) / batches)
        optimizer.step()
        optimizer.zero_grad()
    fabric.save(Path(folder, "model.ckpt"), {"model": model})
    loaded = fabric.load(Path(folder, "model.ckpt"))["model"]
    result = {
        "size": fabric.world_size,
        "weights": [*model.weight[0].tolist(), model.bias.item()],
        "mean rank": fabric.all_reduce(float(fabric.global_rank), reduce_op="mean").item(),
        "ranks": fabric.all_gather(torch.tensor(fabric.global_rank)).flatten().tolist(),
        "root's": fabric.broadcast(fabric.global_rank, src=0),
        "loaded": loaded["bias"].item() == model.bias.item(),
        "backend": torch.distributed.get_backend() if torch.distributed.is_initialized() else "",
    }
    Path(folder, f"{fabric.global_rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    assert "FarandoleFabricStrategy" in farandole_lightning.__all__  # the import makes the name "farandole" known
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
