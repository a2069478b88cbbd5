// Launches; with "makes", another thread makes memory meanwhile.
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuMemAlloc_v2(unsigned long long *, size_t);

static volatile int made;

static void launch(int n) {
  for (int i = 0; i < n; i++) cuLaunchKernel((void *)8, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void *makes(void *unused) {
  unsigned long long at;
  for (int i = 0; i < 3; i++) {
    usleep(5000);
    cuMemAlloc_v2(&at, 1 << 20);
  }
  made = 1;
  return unused;
}

int main(int argc, char **argv) {
  pthread_t thread;
  // What a process begins with is left out.
  launch(1100);
  if (argc < 2 || strcmp(argv[1], "makes")) return 0;
  pthread_create(&thread, NULL, makes, NULL);
  while (!made) launch(10), usleep(100);
  return pthread_join(thread, NULL);
}
