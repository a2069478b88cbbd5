// A library of CUDA's name in which a lock stands in the way: launches take it, and whoever makes memory or loads a module has it for 20 ms.
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// By this it is known as CUDA's.
int cuDriverGetVersion(int *v) { return *v = 13000, 0; }

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream,
                   void **arguments, void **extra) {
  (void)f, (void)y, (void)z, (void)bx, (void)by, (void)bz, (void)shared, (void)stream, (void)arguments, (void)extra;
  pthread_mutex_lock(&lock);
  pthread_mutex_unlock(&lock);
  // A grid of more than 100 blocks takes a microsecond of CPU time for each.
  struct timespec from, now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
  for (long us = 0; x > 100 && us < x;) {
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    us = (now.tv_sec - from.tv_sec) * 1000000 + (now.tv_nsec - from.tv_nsec) / 1000;
  }
  return 0;
}

int cuModuleLoadData(void **to, const void *image) {
  *to = (void *)image;
  pthread_mutex_lock(&lock);
  usleep(20000);
  pthread_mutex_unlock(&lock);
  return 0;
}

// Touches all of the memory, on the CPU.
int cuMemcpyHtoD_v2(unsigned long long to, const void *from, size_t bytes) {
  static char page[4096];
  (void)to;
  for (size_t i = 0; i < bytes; i += sizeof page) memcpy(page, (const char *)from + i, sizeof page);
  return page[0];
}

// Takes no lock.
int cuCtxSynchronize(void) { return usleep(20000); }

int cuMemAlloc_v2(unsigned long long *to, size_t bytes) {
  (void)bytes;
  pthread_mutex_lock(&lock);
  usleep(20000);
  pthread_mutex_unlock(&lock);
  *to = 0;
  return 0;
}
