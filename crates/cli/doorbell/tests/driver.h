/* The driver's calls that programs on the software GPU make. */
#include <stdio.h>
#include <stdlib.h>

typedef void *ptr;
int cuInit(unsigned);
int cuDeviceGet(int *, int);
int cuDevicePrimaryCtxRetain(ptr *, int);
int cuCtxSetCurrent(ptr);
int cuCtxSynchronize(void);
int cuModuleLoadData(ptr *, const void *);
int cuModuleUnload(ptr);
int cuModuleGetFunction(ptr *, ptr, const char *);
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuMemFree_v2(unsigned long long);
int cuStreamCreate(ptr *, unsigned);
int cuStreamCreateWithPriority(ptr *, unsigned, int);
int cuStreamDestroy_v2(ptr);
int cuStreamSynchronize(ptr);
int cuStreamBeginCapture_v2(ptr, int);
int cuStreamEndCapture(ptr, ptr *);
int cuGraphInstantiateWithFlags(ptr *, ptr, unsigned long long);
int cuGraphLaunch(ptr, ptr);
int cuLaunchKernel(ptr, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, ptr, ptr *, ptr *);

#define DO(call)                                                \
  do {                                                          \
    int r = call;                                               \
    if (r) fprintf(stderr, "%s: %d\n", #call, r), exit(1);      \
  } while (0)
