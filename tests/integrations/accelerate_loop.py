"""A training loop with accelerate; each rank writes what a test reads.

    farandole run -np 2 accelerate_loop.py FOLDER BACKEND BATCHES

A step sees all rows: on each rank in BATCHES batches.
"""

import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator

ROWS = 64


def main(folder, backend, batches):
    if backend:
        torch.distributed.init_process_group(backend)  # the line that selects Farandole on CPUs
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=batches)
    torch.manual_seed(7 + accelerator.process_index)  # rank 0's parameters are those of all
    model = torch.nn.Linear(4, 1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.sin(torch.arange(ROWS * 4.0)).reshape(ROWS, 4).double()
    data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
    loader = torch.utils.data.DataLoader(data, batch_size=ROWS // accelerator.num_processes // batches, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(4):
        for some, targets in loader:
            with accelerator.accumulate(model):
                accelerator.backward(torch.nn.functional.mse_loss(model(some), targets))
                optimizer.step()
                optimizer.zero_grad()
    accelerator.wait_for_everyone()
    accelerator.save_state(str(Path(folder, "state")))
    plain = accelerator.unwrap_model(model)
    result = {
        "size": accelerator.num_processes,
        "type": accelerator.distributed_type.value,
        "weights": [*plain.weight[0].tolist(), plain.bias.item()],
        "ranks": accelerator.gather_for_metrics(torch.tensor([accelerator.process_index])).tolist(),
        "mean rank": accelerator.reduce(torch.tensor(float(accelerator.process_index)), "mean").item(),
        "backend": torch.distributed.get_backend() if torch.distributed.is_initialized() else "",
    }
    Path(folder, f"{accelerator.process_index}.json").write_text(json.dumps(result))
    accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
