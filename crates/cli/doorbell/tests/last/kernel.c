// Launches a graph of one short kernel 100 times, then one of the same kernel that copies 64 MiB; on the software GPU. With an argument it launches the short
// one so many times instead, says so in the middle, and waits for none of them until the end.
#include "../driver.h"
#include <unistd.h>

enum { LARGE = 64 << 20 };

int main(int argc, char **argv) {
  int device;
  ptr context, module, copy, stream, graph, graphs[2];
  unsigned long long to, from;
  DO(cuInit(0));
  DO(cuDeviceGet(&device, 0));
  DO(cuDevicePrimaryCtxRetain(&context, device));
  DO(cuCtxSetCurrent(context));
  DO(cuModuleLoadData(&module, "image"));
  DO(cuModuleGetFunction(&copy, module, "copy"));
  DO(cuMemAlloc_v2(&to, LARGE));
  DO(cuMemAlloc_v2(&from, LARGE));
  DO(cuStreamCreate(&stream, 1));
  for (int i = 0; i < 2; i++) {
    unsigned bytes = i ? LARGE : 256;
    ptr arguments[] = {&to, &from, &bytes};
    DO(cuStreamBeginCapture_v2(stream, 0));
    DO(cuLaunchKernel(copy, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    DO(cuStreamEndCapture(stream, &graph));
    DO(cuGraphInstantiateWithFlags(&graphs[i], graph, 0));
  }
  for (int i = 0, n = argc > 1 ? atoi(argv[1]) : 0; i < n; i++) {
    DO(cuGraphLaunch(graphs[0], stream));
    usleep(300);
    if (i == n / 2) puts("half"), fflush(stdout);
  }
  if (argc > 1) {
    DO(cuStreamSynchronize(stream));
    puts("done");
    return 0;
  }
  // (A launch that uploads a graph has no time.)
  DO(cuGraphLaunch(graphs[1], stream));
  for (int i = 0; i < 100; i++) {
    DO(cuGraphLaunch(graphs[0], stream));
    DO(cuStreamSynchronize(stream));
    usleep(1000);
  }
  DO(cuGraphLaunch(graphs[1], stream));
  DO(cuStreamSynchronize(stream));
  usleep(300000);
  puts("done");
  return 0;
}
