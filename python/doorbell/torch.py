"""Removed: doorbell.torch.CUDAGraph and patch()."""

raise ImportError(
    "doorbell.torch was removed: CUDAGraph gained nothing and broke programs (docs/results/torch-graph.md). Use torch.cuda.CUDAGraph, or "
    "doorbell.graph(), chain() and loop() to launch without CUDA's locks, in no stream's order (docs/guides/pytorch-server.md)")
