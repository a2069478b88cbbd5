"""Training fed by a DataLoader with worker processes; the last line is a hash of the weights.

usage: loader.py fork|spawn [gpu]: how workers start, and whether they use the GPU themselves (spawn only)."""
import hashlib
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from torch.utils.data import DataLoader, Dataset

ON_GPU = "gpu" in sys.argv


class Numbers(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        x = torch.randn(128, generator=torch.Generator().manual_seed(i))
        if ON_GPU:
            x = (x.cuda() * 2).cpu()
        return x


def main():
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    model = torch.nn.Linear(128, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = DataLoader(Numbers(), batch_size=32, num_workers=2, multiprocessing_context=sys.argv[1])
    for _ in range(2):
        for x in batches:
            optimizer.zero_grad()
            model(x.cuda()).square().mean().backward()
            optimizer.step()
    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
    print("weights", hashlib.sha256(weights).hexdigest()[:24])


if __name__ == "__main__":
    main()
