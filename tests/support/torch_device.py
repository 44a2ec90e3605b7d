"""Where the suites of PyTorch put their tensors: on the host, or, with FARANDOLE_TEST_DEVICE=cuda, on a GPU.

Several ranks may share the GPU then. NCCL refuses ranks of one host on one GPU, so each rank says that it is a host of
its own; NCCL then connects them by sockets.
"""

from __future__ import annotations

import os

DEVICE = os.environ.get("FARANDOLE_TEST_DEVICE", "cpu")

if DEVICE != "cpu" and "FARANDOLE_RANK" in os.environ:
    os.environ.setdefault("NCCL_HOSTID", f"rank-{os.environ['FARANDOLE_RANK']}")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
