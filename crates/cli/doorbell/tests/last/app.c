// Launches for a while; something takes long; launches on. What takes long: "alloc" holds a lock that launches need, "kernel" waits for the GPU,
// "none". Then it ends: "exit", "abort", or "wait" for a file. Its library is that of `why`.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuMemAlloc_v2(unsigned long long *, size_t);
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
  if (!strcmp(argv[1], "kernel")) cuCtxSynchronize();
  for (int i = 0; i < 50; i++) launch(50), usleep(4000);
  puts("done");
  fflush(stdout);
  if (!strcmp(argv[2], "abort")) abort();
  while (strchr(argv[2], '/') && access(argv[2], F_OK)) launch(20), usleep(1000);
  stop = 1;
  return pthread_join(thread, NULL);
}
