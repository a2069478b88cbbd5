/* A graph with a WHILE node: 4 launches, each with 50 runs of `body`.
   record: --gpu-times
   last: --gpu-times
   cannot: record conditional nodes are not told yet
   expect: sum(kernels('')[:2]) >= 204 or 'conditional' in views('show', '--kernels') + views('show', '--graphs') */
#include "gpu.h"

__global__ void body(int *p, cudaGraphConditionalHandle h)
{
    int n = atomicAdd(p, 1) + 1;
    cudaGraphSetConditional(h, n % 50 != 0);
}
__global__ void before(int *p) { atomicAdd(p + 1, 1); }

int main()
{
    int *p, h[2];
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphConditionalHandle c;
    cudaGraphNode_t a, w, b;
    cudaGraphExec_t x;
    OK(cudaMalloc(&p, 8));
    OK(cudaMemset(p, 0, 8));
    OK(cudaStreamCreate(&s));
    OK(cudaGraphCreate(&g, 0));
    OK(cudaGraphConditionalHandleCreate(&c, g, 1, cudaGraphCondAssignDefault));
    void *first[] = {&p}, *each[] = {&p, &c};
    cudaGraphNodeParams k = {cudaGraphNodeTypeKernel}, q = {cudaGraphNodeTypeKernel}, loop = {cudaGraphNodeTypeConditional};
    k.kernel.func = (void *)before, k.kernel.gridDim = k.kernel.blockDim = dim3(1), k.kernel.kernelParams = first;
    q.kernel.func = (void *)body, q.kernel.gridDim = q.kernel.blockDim = dim3(1), q.kernel.kernelParams = each;
    loop.conditional.handle = c, loop.conditional.type = cudaGraphCondTypeWhile, loop.conditional.size = 1;
#if CUDART_VERSION >= 13000
    OK(cudaGraphAddNode(&a, g, nullptr, nullptr, 0, &k));
    OK(cudaGraphAddNode(&w, g, &a, nullptr, 1, &loop));
    OK(cudaGraphAddNode(&b, loop.conditional.phGraph_out[0], nullptr, nullptr, 0, &q));
#else
    OK(cudaGraphAddNode(&a, g, nullptr, 0, &k));
    OK(cudaGraphAddNode(&w, g, &a, 1, &loop));
    OK(cudaGraphAddNode(&b, loop.conditional.phGraph_out[0], nullptr, 0, &q));
#endif
    OK(cudaGraphInstantiate(&x, g, 0));
    for (int i = 0; i < 4; i++)
        OK(cudaGraphLaunch(x, s));
    OK(cudaStreamSynchronize(s));
    OK(cudaMemcpy(h, p, 8, cudaMemcpyDeviceToHost));
    printf("body %d (200), before %d (4)\n", h[0], h[1]);
    return h[0] != 200;
}
