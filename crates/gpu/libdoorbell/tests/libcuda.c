/* Stands for libcuda beside the example "undelayed": one lock that set-up calls hold for a while and that copies take. Memory is the
 * heap. STUB_SPOIL in the environment: what is read back has a wrong bit. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOLD_US = 1500, SOME = 1 };
static pthread_mutex_t inside = PTHREAD_MUTEX_INITIALIZER;
static char thing;

static int hold(void **made)
{
    pthread_mutex_lock(&inside);
    usleep(HOLD_US);
    pthread_mutex_unlock(&inside);
    if (made)
        *made = &thing;
    return 0;
}

static int pass(void)
{
    pthread_mutex_lock(&inside);
    pthread_mutex_unlock(&inside);
    return 0;
}

int cuInit(unsigned flags) { return (int)flags; }
int cuDeviceGet(int *device, int n) { return *device = n; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &thing; return device; }
int cuCtxSetCurrent(void *context) { return context != &thing; }
int cuMemAlloc_v2(unsigned long long *to, size_t bytes)
{
    *to = (unsigned long long)(size_t)malloc(bytes);
    return hold(NULL) || !*to;
}
int cuMemFree_v2(unsigned long long at) { free((void *)(size_t)at); return pass(); }
int cuMemHostAlloc(void **to, size_t bytes, unsigned flags) { hold(to); *to = malloc(bytes); return flags != 0 || !*to; }
int cuMemFreeHost(void *at) { free(at); return pass(); }
int cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags) { return hold(NULL) || !at || !bytes || flags; }
int cuMemHostUnregister(void *at) { return !at || pass(); }
int cuStreamCreate(void **to, unsigned flags) { return hold(to) || flags != 1; }
int cuStreamDestroy_v2(void *stream) { return stream != &thing; }
int cuStreamSynchronize(void *stream) { return stream != &thing || pass(); }
int cuStreamBeginCapture_v2(void *stream, int mode) { return stream != &thing || mode != 2; }
int cuStreamEndCapture(void *stream, void **graph) { *graph = &thing; return stream != &thing; }
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *stream)
{
    memcpy((void *)(size_t)to, from, bytes);
    return stream != &thing || pass();
}
int cuMemcpyDtoH_v2(void *to, unsigned long long from, size_t bytes)
{
    memcpy(to, (void *)(size_t)from, bytes);
    if (getenv("STUB_SPOIL"))
        ((char *)to)[bytes - 1] ^= 1;
    return pass();
}
/* The text begins as PTX does, and is no text that was loaded before by this thread. */
int cuModuleLoadData(void **to, const void *text)
{
    static __thread size_t last;
    size_t sum = 0;
    for (const char *c = text; *c; c++)
        sum = sum * 31 + (unsigned char)*c;
    int bad = strncmp(text, ".version", 8) != 0 || sum == last;
    last = sum;
    return hold(to) || bad;
}
int cuModuleUnload(void *module) { return module != &thing; }
int cuModuleGetFunction(void **to, void *module, const char *name) { *to = &thing; return module != &thing || name[0] != 'k'; }
int cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned shared, void *stream,
                   void **arguments, void **more)
{
    return f != &thing || a * b * c * d * e * g != 1 || shared || stream != &thing || !arguments || more;
}
int cuGraphInstantiateWithFlags(void **to, void *graph, unsigned long long flags) { return hold(to) || graph != &thing || flags; }
int cuGraphExecDestroy(void *exec) { return exec != &thing; }
int cuGraphDestroy(void *graph) { return graph != &thing; }
