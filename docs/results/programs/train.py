# A small model trained with worker processes, a pinning thread and intra-op threads; prints what it learnt, bit by bit.
import os
import threading

import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 2048

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        x = torch.randn(64, generator=g)
        return x, (x[:8].sum() > 0).long()


def main():
    torch.manual_seed(0)
    torch.set_num_threads(2)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    workers = int(os.environ.get("WORKERS", "2"))
    rows = DataLoader(Rows(), batch_size=64, num_workers=workers, persistent_workers=workers > 0)
    total = 0.0
    for _ in range(2):
        for x, y in rows:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
    sums = [0.0] * 8

    def forward(k):
        x = torch.full((256, 64), 0.01 * k)
        with torch.no_grad():
            for _ in range(50):
                sums[k] = model(x).double().sum().item()

    threads = [threading.Thread(target=forward, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(f"loss {total:.6f} outputs {sum(sums):.6f}")


if __name__ == "__main__":
    main()
