/* A program without any call that `run --fix` answers: 100,000 launches of a kernel of 10 us, with a synchronisation after each 16.
 *
 *     launches [NUMBER]
 *
 * Prints one line of JSON: the median launch in ns, the time from the first launch to the end of all in ms, and the peak of the process's memory in KiB.
 *
 *     cc -O2 -o launches launches.c -ldl
 */
#include "driver.h"
#include <string.h>

enum { MOST = 1 << 20, QUEUED = 16 };

static int rising(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static long peak_kib(void)
{
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f)) sscanf(line, "VmHWM: %ld", &kib);
    if (f) fclose(f);
    return kib;
}

int main(int count, char **word)
{
    static uint32_t took[MOST];
    static const char code[] = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry spin(){ .reg .b64 a,b; .reg .pred p; mov.u64 a,%globaltimer; "
                               "add.u64 a,a,10000; L: mov.u64 b,%globaltimer; setp.lt.u64 p,b,a; @p bra L; ret; }";
    int n = count > 1 ? atoi(word[1]) : 100000;
    void *function, *stream;
    if (n < 1 || n > MOST) return fprintf(stderr, "launches [NUMBER, at most %d]\n", MOST), 2;
    function = begin(code, "spin");
    CUDA(cuStreamCreate, &stream, 1);
    /* Found once, as a program that is linked to CUDA has them. */
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) = dlsym(lib, "cuLaunchKernel");
    int (*synchronize)(void *) = dlsym(lib, "cuStreamSynchronize");
    memset(took, 1, sizeof took);
    int64_t began = now_ns();
    for (int i = 0, result = 0; i < n; i++) {
        int64_t before = now_ns();
        result = launch(function, 1, 1, 1, 1, 1, 1, 0, stream, 0, 0);
        took[i] = now_ns() - before;
        if (!result && i % QUEUED == QUEUED - 1) result = synchronize(stream);
        if (result) return fprintf(stderr, "launch %d: %d\n", i, result), 1;
    }
    CUDA(cuStreamSynchronize, stream);
    double ms = (now_ns() - began) / 1e6;
    qsort(took, n, sizeof *took, rising);
    printf("{\"launches\":%d,\"p50_ns\":%u,\"ms\":%.3f,\"peak_kib\":%ld}\n", n, took[n / 2], ms, peak_kib());
    return 0;
}
