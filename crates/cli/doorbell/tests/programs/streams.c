// Launches a graph of one kernel in four streams: an ordinary one, one with a priority, one of a green context with a priority, and one that was created while
// the green context was current.
#include "../driver.h"

enum { SM = 1, STREAMS = 4, LAUNCHES = 3 };
struct resource {
  unsigned type, padding[23], sms, rest[11];
};
int cuDeviceGetDevResource(int, struct resource *, int);
int cuDevSmResourceSplitByCount(struct resource *, unsigned *, const struct resource *, struct resource *, unsigned, unsigned);
int cuDevResourceGenerateDesc(ptr *, struct resource *, unsigned);
int cuGreenCtxCreate(ptr *, ptr, int, unsigned);
int cuCtxFromGreenCtx(ptr *, ptr);
int cuGreenCtxStreamCreate(ptr *, ptr, unsigned, int);

int main(void) {
  int device;
  unsigned groups = 1;
  ptr context, other, green, description, module, copy, streams[STREAMS], graph, launched;
  unsigned long long to, from;
  struct resource all, part;
  DO(cuInit(0));
  DO(cuDeviceGet(&device, 0));
  DO(cuDevicePrimaryCtxRetain(&context, device));
  DO(cuCtxSetCurrent(context));
  DO(cuDeviceGetDevResource(device, &all, SM));
  DO(cuDevSmResourceSplitByCount(&part, &groups, &all, NULL, 0, 16));
  DO(cuDevResourceGenerateDesc(&description, &part, 1));
  DO(cuGreenCtxCreate(&green, description, device, 1));
  DO(cuCtxFromGreenCtx(&other, green));
  DO(cuStreamCreate(&streams[0], 1));
  DO(cuStreamCreateWithPriority(&streams[1], 1, -3));
  DO(cuGreenCtxStreamCreate(&streams[2], green, 1, -5));
  DO(cuCtxSetCurrent(other));
  DO(cuStreamCreate(&streams[3], 1));
  DO(cuCtxSetCurrent(context));
  DO(cuModuleLoadData(&module, "image"));
  DO(cuModuleGetFunction(&copy, module, "copy"));
  DO(cuMemAlloc_v2(&to, 256));
  DO(cuMemAlloc_v2(&from, 256));
  for (int i = 0; i < STREAMS; i++) {
    unsigned bytes = 256;
    ptr arguments[] = {&to, &from, &bytes};
    DO(cuStreamBeginCapture_v2(streams[i], 0));
    DO(cuLaunchKernel(copy, 1, 1, 1, 1, 1, 1, 0, streams[i], arguments, NULL));
    DO(cuStreamEndCapture(streams[i], &graph));
    DO(cuGraphInstantiateWithFlags(&launched, graph, 0));
    for (int k = 0; k < LAUNCHES; k++) {
      DO(cuGraphLaunch(launched, streams[i]));
      DO(cuStreamSynchronize(streams[i]));
    }
    printf("%llx\n", (unsigned long long)streams[i]);
  }
  return 0;
}
