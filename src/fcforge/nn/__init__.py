"""Building blocks of networks: layers, fused kernels, CUDA graphs, threads."""
