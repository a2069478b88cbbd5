/* Another preloaded library replaces dlsym, as limiters of GPU memory do, and asks by RTLD_NEXT.
   build: gcc -w -shared -fPIC -O1 dlsym_hook.c -o hook.so
   also: locker.c
   start: "$@" env LD_PRELOAD=$PWD/hook.so ./locker
   start outside: LD_PRELOAD=$PWD/hook.so "$@" ./locker
   limit: 15 */
#define _GNU_SOURCE
#include <dlfcn.h>

void *dlsym(void *h, const char *n)
{
    static void *(*real)(void *, const char *);
    if (!real)
        real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    return real(h, n);
}
