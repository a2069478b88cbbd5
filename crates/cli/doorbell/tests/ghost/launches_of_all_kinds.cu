/* Cooperative launches, launches by the GPU itself, cudaLaunchKernelExC, and clusters.
   build: nvcc -w -O2 -arch=native -rdc=true launches_of_all_kinds.cu -o launches_of_all_kinds -lcudadevrt
   record: --gpu-times
   last: --gpu-times
   cannot: record kernels that kernels launch are not told from others yet
   expect: [kernels(n) for n in ('parent', 'coop', 'exc', 'clustered')] == [(n, 0, n) for n in (50, 100, 111, 60)]
   expect: kernels('child')[0] == 0 */
#include "gpu.h"
#include <cooperative_groups.h>

__global__ void child(int *p) { atomicAdd(p, 1); }
__global__ void parent(int *p)
{
    atomicAdd(p + 1, 1);
    child<<<1, 1>>>(p);
}
__global__ void coop(int *p)
{
    cooperative_groups::this_grid().sync();
    if (!threadIdx.x && !blockIdx.x)
        atomicAdd(p + 2, 1);
}
__global__ void exc(int *p)
{
    if (!threadIdx.x && !blockIdx.x)
        atomicAdd(p + 3, 1);
}
__global__ void clustered(int *p)
{
    if (!threadIdx.x)
        atomicAdd(p + 4, 1);
}

int main()
{
    int *p, h[5];
    OK(cudaMalloc(&p, 20));
    OK(cudaMemset(p, 0, 20));
    void *a[] = {&p};
    cudaLaunchConfig_t c = {};
    cudaLaunchAttribute pair[1];
    c.gridDim = dim3(4), c.blockDim = dim3(32);
    for (int i = 0; i < 100; i++)
        OK(cudaLaunchCooperativeKernel((void *)coop, dim3(32), dim3(64), a, 0, 0));
    for (int i = 0; i < 50; i++)
        parent<<<1, 1>>>(p);
    for (int i = 0; i < 111; i++)
        OK(cudaLaunchKernelExC(&c, (void *)exc, a));
    pair[0].id = cudaLaunchAttributeClusterDimension;
    pair[0].val.clusterDim.x = 2, pair[0].val.clusterDim.y = pair[0].val.clusterDim.z = 1;
    c.attrs = pair, c.numAttrs = 1;
    for (int i = 0; i < 60; i++)
        OK(cudaLaunchKernelExC(&c, (void *)clustered, a));
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(h, p, 20, cudaMemcpyDeviceToHost));
    printf("child %d (50), parent %d (50), coop %d (100), exc %d (111), clustered %d (240)\n", h[0], h[1], h[2], h[3], h[4]);
    return h[0] != 50 || h[2] != 100;
}
