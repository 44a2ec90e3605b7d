"""A user's program with Keras on PyTorch. Read by type checkers, see type_checks.py; never run."""

import farandole_torch.keras as hvd


def load(loader: hvd.elastic.DataLoader) -> None:
    update = hvd.elastic.UpdateDataCallback(loader)
    update.on_epoch_begin(0)
