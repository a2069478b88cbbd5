/* Another process locks, checkpoints, restores and unlocks it in the middle; it goes on, under each tap.
   also: checkpointed.py
   start: python3 ./checkpointed.py "$@" ./checkpointed
   start trap: python3 ./checkpointed.py ${1:+"${@:1:2}"} ${1:+$([ $2 = record ] && echo --tap trap)} ${1:+"${@:3}"} ./checkpointed
   record: --calls
   expect: summary['launches'] >= 2000 or not whole
   limit: 40 */
#include "gpu.h"
#include <unistd.h>

__global__ void tick(int *p) { atomicAdd(p, 1); }

int main()
{
    int *p, h = 0;
    char c;
    setvbuf(stdout, 0, _IOLBF, 0);
    OK(cudaMalloc(&p, 4));
    OK(cudaMemset(p, 0, 4));
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < 1000; i++)
            tick<<<1, 1>>>(p);
        OK(cudaMemcpy(&h, p, 4, cudaMemcpyDeviceToHost));
        printf("ticks %d\n", h);
        if (!half && read(0, &c, 1) != 1)
            return 3;
    }
    return h != 2000;
}
