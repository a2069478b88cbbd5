/* Six ranks on one GPU, which wait for each other in a kernel in each of 40 steps; rank 3 comes 25 ms late.
   record: --gpu-times
   start: head -c 4096 /dev/zero >word; export WORLD_SIZE=6; for r in 0 1 2 3 4 5; do RANK=$r "$@" ./ranks word & P="$P $!"; done; for p in $P; do wait $p; echo $?; done
   expect: len(files) == 6 and whole */
#include "gpu.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

__global__ void compute(float *p, int n)
{
    for (int k = 0; k < 64; k++)
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
            p[i] = p[i] * 0.5f + k;
}
__global__ void nccl_gate(volatile unsigned *w, unsigned all)
{
    while (*w < all)
        ;
}

int main(int argc, char **argv)
{
    int rank = atoi(getenv("RANK")), ranks = atoi(getenv("WORLD_SIZE"));
    unsigned *w = (unsigned *)mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open(argv[1], O_RDWR), 0), *d;
    float *p;
    cudaStream_t s;
    OK(cudaHostRegister(w, 4096, cudaHostRegisterMapped));
    OK(cudaHostGetDevicePointer((void **)&d, w, 0));
    OK(cudaMalloc(&p, 4 << 20));
    OK(cudaStreamCreate(&s));
    for (int i = 0; i < 40; i++) {
        usleep(2000 + (rank == 3 ? 25000 : 0));
        compute<<<8, 128, 0, s>>>(p, 1 << 20);
        OK(cudaStreamSynchronize(s));
        __atomic_fetch_add(w, 1, __ATOMIC_SEQ_CST);
        nccl_gate<<<1, 1, 0, s>>>(d, ranks * (i + 1));
        OK(cudaStreamSynchronize(s));
    }
    return 0;
}
