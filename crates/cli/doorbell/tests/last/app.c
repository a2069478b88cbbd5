// Launches for a while; something takes long; launches on. What takes long: "alloc" and "module" hold a lock that launches need, "kernel" waits for the
// GPU, "preempt" launches while others want its CPU, "none". Then it ends: "exit", "abort", or "wait" for a file. Its library is that of `why`.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuModuleLoadData(void **, const void *);
int cuCtxSynchronize(void);

static volatile int stop;

static void launch(int n) {
  for (int i = 0; i < n; i++) cuLaunchKernel((void *)8, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void *launches(void *unused) {
  while (!stop) launch(20), usleep(200);
  return unused;
}

static void *short_thread(void *unused) {
  launch(3);
  return unused;
}

static volatile int spin = 1;

static void *spins(void *unused) {
  while (spin);
  return unused;
}

// A launch of 10 ms of CPU time on a CPU that four other threads use, too.
static void preempt(void) {
  pthread_t others[4];
  cpu_set_t before, one;
  sched_getaffinity(0, sizeof before, &before);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  sched_setaffinity(0, sizeof one, &one);
  for (int i = 0; i < 4; i++) {
    pthread_create(&others[i], NULL, spins, NULL);
    pthread_setname_np(others[i], "spinner");
  }
  cuLaunchKernel((void *)8, 10000, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  spin = 0;
  sched_setaffinity(0, sizeof before, &before);
  for (int i = 0; i < 4; i++) pthread_join(others[i], NULL);
}

int main(int argc, char **argv) {
  if (argc < 3) return 9;
  pthread_t thread, one;
  pthread_create(&thread, NULL, launches, NULL);
  for (int i = 0; i < 200; i++) {
    launch(50);
    pthread_create(&one, NULL, short_thread, NULL);
    pthread_join(one, NULL);
    usleep(500);
  }
  unsigned long long at;
  if (!strcmp(argv[1], "alloc")) cuMemAlloc_v2(&at, 1 << 20);
  void *module;
  if (!strcmp(argv[1], "module")) cuModuleLoadData(&module, "image");
  if (!strcmp(argv[1], "preempt")) preempt();
  if (!strcmp(argv[1], "kernel")) cuCtxSynchronize();
  for (int i = 0; i < 50; i++) launch(50), usleep(4000);
  puts("done");
  fflush(stdout);
  if (!strcmp(argv[2], "abort")) abort();
  while (strchr(argv[2], '/') && access(argv[2], F_OK)) launch(20), usleep(1000);
  stop = 1;
  return pthread_join(thread, NULL);
}
