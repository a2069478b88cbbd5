/* Calls of CUDA's that return at once, except those that wait. */
#include <unistd.h>

/* doorbell knows CUDA's library by it. */
int cuDriverGetVersion(int *version) { return *version = 13000, 0; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *stream, void **params, void **extra) {
    return 0;
}
int cuEventRecord(void *event, void *stream) { return 0; }
int cuEventQuery(void *event) { return 0; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags) { return 0; }
int cuStreamSynchronize(void *stream) { return usleep(300); }
