// Turns of ten seconds of a day, without the pauses between them. In each turn a thread is created, launches and ends. In every hundredth turn streams,
// memory and a module are created and end, and the program starts itself once for a single turn. On the software GPU. Prints its own memory at the end.
#include "../driver.h"
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static ptr context, stream, graph;

static void *turn(void *unused) {
  DO(cuCtxSetCurrent(context));
  for (int i = 0; i < 8; i++) DO(cuGraphLaunch(graph, stream));
  DO(cuStreamSynchronize(stream));
  return unused;
}

static void comes_and_goes(const char *self) {
  ptr module, other;
  unsigned long long memory;
  DO(cuModuleLoadData(&module, "image"));
  DO(cuStreamCreate(&other, 1));
  DO(cuMemAlloc_v2(&memory, 1 << 20));
  DO(cuMemFree_v2(memory));
  DO(cuStreamDestroy_v2(other));
  DO(cuModuleUnload(module));
  pid_t child = fork();
  if (child == 0) execl(self, self, "1", NULL), _exit(127);
  int status;
  if (waitpid(child, &status, 0) != child || status) fprintf(stderr, "a child: %d\n", status), exit(1);
}

int main(int argc, char **argv) {
  int turns = argc > 1 ? atoi(argv[1]) : 1, device;
  ptr module, copy, captured;
  unsigned long long to, from;
  unsigned bytes = 256;
  ptr arguments[] = {&to, &from, &bytes};
  DO(cuInit(0));
  DO(cuDeviceGet(&device, 0));
  DO(cuDevicePrimaryCtxRetain(&context, device));
  DO(cuCtxSetCurrent(context));
  DO(cuModuleLoadData(&module, "image"));
  DO(cuModuleGetFunction(&copy, module, "copy"));
  DO(cuMemAlloc_v2(&to, 4096));
  DO(cuMemAlloc_v2(&from, 4096));
  DO(cuStreamCreate(&stream, 1));
  DO(cuStreamBeginCapture_v2(stream, 0));
  DO(cuLaunchKernel(copy, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
  DO(cuStreamEndCapture(stream, &captured));
  DO(cuGraphInstantiateWithFlags(&graph, captured, 0));
  for (int i = 0; i < turns; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, turn, NULL)) return 1;
    pthread_join(thread, NULL);
    if (i % 100 == 99) comes_and_goes(argv[0]);
  }
  DO(cuCtxSynchronize());
  if (turns == 1) return 0;
  FILE *f = fopen("/proc/self/status", "r");
  char line[256];
  while (f && fgets(line, sizeof line, f))
    if (!strncmp(line, "RssAnon:", 8)) printf("%d\n", atoi(line + 8));
  return 0;
}
