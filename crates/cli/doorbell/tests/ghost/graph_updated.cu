/* A graph whose kernel's parameters change before each of 10,000 launches; every 100th time by cudaGraphExecUpdate.
   record: --gpu-times
   last: --gpu-times
   cannot: record kernels of updated graphs are not told yet
   expect: kernels('mix')[:2] == (0, 10000) and kernels('mix')[2] >= 9990 */
#include "gpu.h"

__global__ void mix(unsigned long long *p, unsigned v) { *p = *p * 6364136223846793005ull + v; }

static cudaKernelNodeParams node(void **arguments)
{
    cudaKernelNodeParams q = {};
    q.func = (void *)mix, q.gridDim = q.blockDim = dim3(1), q.kernelParams = arguments;
    return q;
}

int main()
{
    unsigned long long *p, h, want = 7;
    unsigned i = 0;
    cudaGraph_t g, other;
    cudaGraphNode_t n, in_other;
    cudaGraphExec_t x;
    cudaStream_t s;
    OK(cudaMalloc(&p, 8));
    OK(cudaMemcpy(p, &want, 8, cudaMemcpyHostToDevice));
    void *arguments[] = {&p, &i};
    cudaKernelNodeParams q = node(arguments);
    OK(cudaGraphCreate(&g, 0));
    OK(cudaGraphAddKernelNode(&n, g, nullptr, 0, &q));
    OK(cudaGraphInstantiate(&x, g, 0));
    OK(cudaStreamCreate(&s));
    for (; i < 10000; i++) {
        if (i % 100 == 99) {
            cudaGraphExecUpdateResultInfo why;
            OK(cudaGraphCreate(&other, 0));
            OK(cudaGraphAddKernelNode(&in_other, other, nullptr, 0, &q));
            OK(cudaGraphExecUpdate(x, other, &why));
            OK(cudaGraphDestroy(other));
        } else {
            OK(cudaGraphExecKernelNodeSetParams(x, n, &q));
        }
        OK(cudaGraphLaunch(x, s));
        want = want * 6364136223846793005ull + i;
    }
    OK(cudaStreamSynchronize(s));
    OK(cudaMemcpy(&h, p, 8, cudaMemcpyDeviceToHost));
    printf("hash %016llx, should be %016llx\n", h, want);
    return h != want;
}
