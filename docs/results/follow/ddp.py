"""Data-parallel training on every rank's own GPU; the last line of rank 0 is a hash of its weights.

Run by torchrun. Deterministic: one seed, the same batches in each run, reductions of two ranks."""
import hashlib
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
torch.use_deterministic_algorithms(True)
torch.manual_seed(1)
dist.init_process_group("nccl")
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 16)).cuda()
model = DistributedDataParallel(model, device_ids=[local])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(100 + rank)
for _ in range(30):
    x = torch.randn(64, 256, generator=generator).cuda(non_blocking=True)
    y = torch.randn(64, 16, generator=generator).cuda(non_blocking=True)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
torch.cuda.synchronize()
digest = hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())).hexdigest()
dist.barrier()
dist.destroy_process_group()
if rank == 0:
    print("weights", digest[:24], flush=True)
