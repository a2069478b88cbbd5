// Launches; with "makes", another thread makes memory meanwhile; with "fresh", it copies memory that was never touched; with a path,
// a file's, that is not in memory.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuMemAlloc_v2(unsigned long long *, size_t);

int cuMemcpyHtoD_v2(unsigned long long, const void *, size_t);

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

enum { BYTES = 8 << 20 };

static int copies(const char *path) {
  int file = path ? open(path, O_RDONLY) : -1;
  if (path) fdatasync(file), posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  void *from = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | (path ? 0 : MAP_ANONYMOUS), file, 0);
  // A page at a time, without huge pages or read-ahead.
  madvise(from, BYTES, MADV_NOHUGEPAGE);
  madvise(from, BYTES, MADV_RANDOM);
  // The second time all pages are there.
  return cuMemcpyHtoD_v2(0, from, BYTES) + cuMemcpyHtoD_v2(0, from, BYTES);
}

int main(int argc, char **argv) {
  pthread_t thread;
  // The time in which a process begins is left out.
  launch(1100);
  if (argc > 1 && !strcmp(argv[1], "fresh")) return copies(NULL);
  if (argc > 1 && strchr(argv[1], '/')) return copies(argv[1]);
  if (argc < 2 || strcmp(argv[1], "makes")) return 0;
  pthread_create(&thread, NULL, makes, NULL);
  while (!made) launch(10), usleep(100);
  return pthread_join(thread, NULL);
}
