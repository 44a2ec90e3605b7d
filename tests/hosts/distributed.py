"""A rank of torch.distributed: the argument is its init_method."""

import socket
import sys

import farandole_torch.distributed  # noqa: F401  (the backend)
import torch
import torch.distributed as dist

dist.init_process_group("farandole", **({"init_method": sys.argv[1]} if sys.argv[1:] else {}))
total = torch.full((3,), dist.get_rank() + 1.0)
dist.all_reduce(total)
hosts: list[object] = [None] * dist.get_world_size()
dist.all_gather_object(hosts, socket.gethostname())
print(total.tolist(), hosts)
dist.destroy_process_group()
