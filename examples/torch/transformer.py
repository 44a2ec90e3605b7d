"""Train a small transformer on the manual pages that Python brings along, to go on with a text byte by byte.

    python examples/torch/transformer.py
    farandole run -np 2 python examples/torch/transformer.py

Needs farandole-torch and tqdm.
"""

from __future__ import annotations

import argparse
import math
from pydoc_data.topics import topics

import farandole_torch as hvd
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from tqdm import tqdm

CONTEXT = 64  # bytes that the model looks back


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small transformer on Python's manual pages.")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--rows", type=int, default=16, help="pieces of text per step and worker")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="for one worker")
    return parser.parse_args()


class Transformer(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(256, width), nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, width // 32, 4 * width, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.logits = nn.Linear(width, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Of each byte of the rows, the logits of the byte after it."""
        length = text.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
        embedded = self.embedding(text) + self.places(torch.arange(length, device=text.device))
        return self.logits(self.layers(embedded, mask, is_causal=True))


def loss_of(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    return cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def main() -> None:
    args = arguments()

    # 1. Find the other workers; choose this one's device.
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)  # the model is too small for more
    device = torch.device("cuda", hvd.local_rank()) if torch.cuda.is_available() else torch.device("cpu")

    # 2. Each worker draws pieces of its own from the first nine tenths; the last tenth is for the test.
    text = torch.tensor(list("\n".join(topics.values()).encode()))
    pieces = text[: len(text) // (CONTEXT + 1) * (CONTEXT + 1)].reshape(-1, CONTEXT + 1)
    train, test = pieces[: len(pieces) * 9 // 10], pieces[len(pieces) * 9 // 10 :]
    draws = torch.Generator().manual_seed(hvd.rank())

    # 3. Average the gradients of all workers; with more text per step the learning rate can be larger.
    model = Transformer(args.width, args.layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate * math.sqrt(hvd.size()))
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, optimizer.param_groups[0]["lr"], args.steps)

    # 4. Start everywhere from rank 0's values.
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    # 5. Train, and show progress once.
    steps = tqdm(range(args.steps), unit="step", disable=hvd.rank() != 0)
    for step in steps:
        rows = train[torch.randint(len(train), [args.rows], generator=draws)].to(device)
        optimizer.zero_grad()
        loss = loss_of(model, rows)
        loss.backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        if step % 20 == 19:
            average = hvd.allreduce(loss.detach(), name="loss")
            steps.set_postfix(bits=f"{average.item() / math.log(2):.2f}")

    # 6. Test every worker's share, average, go on with a text.
    with torch.no_grad():
        mine = test[hvd.rank() :: hvd.size()][:200].to(device)
        bits = hvd.allreduce(loss_of(model.eval(), mine), name="bits").item() / math.log(2)
    if hvd.rank() == 0:
        print(f"The following {continued(model, 'The following ', 100, device)}", flush=True)
        print(f"test: {bits:.3f} bits per byte", flush=True)


@torch.no_grad()
def continued(model: nn.Module, begin: str, count: int, device: torch.device) -> str:
    """A likely continuation of `begin`, by the model."""
    text = torch.tensor([list(begin.encode())], device=device)
    for _ in range(count):
        logits = model(text[:, -CONTEXT:])[0, -1]
        text = torch.cat([text, torch.multinomial((logits / 0.5).softmax(0), 1)[None]], 1)
    return bytes(text[0, len(begin) :].tolist()).decode(errors="replace").replace("\n", " ")


if __name__ == "__main__":
    main()
