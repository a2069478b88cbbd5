/* Memory: small stacks, locked memory, other namespaces of libraries, own limits, fixed addresses.
   start small_stack: "$@" ./memory small_stack
   start locked: "$@" ./memory locked
   start limit: "$@" ./memory limit
   start dlmopen: "$@" ./memory dlmopen
   start deepbind: "$@" ./memory deepbind
   start aslr_off: setarch -R "$@" ./memory plain
   start compat_layout: setarch -L "$@" ./memory plain
   start inner_aslr_off: "$@" setarch -R ./memory plain
   start brk: "$@" ./memory brk
   start malloc: "$@" ./memory malloc
   start coroutine: "$@" ./memory coroutine
   start unlimited_stack: ulimit -s unlimited; "$@" ./memory plain
   start no_data: "$@" sh -c 'ulimit -d 2000; ./memory plain'
   start many_maps: "$@" ./memory many_maps
   limit: 20 */
#include "around.h"
#include <dlfcn.h>
#include <malloc.h>
#include <limits.h>
#include <sys/mman.h>
#include <ucontext.h>

static ucontext_t home, other;
static void turns(void)
{
    for (int i = 0; i < 1000; i++)
        lock(1), swapcontext(&other, &home);
}
static void *locks(void *x)
{
    lock(100);
    return x;
}

int main(int argc, char **argv)
{
    char *what = argv[1];
    pthread_t t;
    pthread_attr_t a;
    lock(5);
    if (!strcmp(what, "small_stack")) {
        pthread_attr_init(&a);
        printf("%d\n", pthread_attr_setstacksize(&a, PTHREAD_STACK_MIN));
        for (int i = 0; i < 50; i++) {
            printf("%d", pthread_create(&t, &a, locks, NULL));
            pthread_join(t, NULL);
        }
        puts("");
    } else if (!strcmp(what, "locked")) {
        printf("%d\n", mlockall(MCL_CURRENT | MCL_FUTURE) && errno != EPERM && errno != ENOMEM);
        pthread_create(&t, NULL, locks, NULL);
        pthread_join(t, NULL);
        munlockall();
    } else if (!strcmp(what, "limit")) {
        struct rlimit r = {64 << 20, 64 << 20};
        setrlimit(RLIMIT_AS, &r);
        pthread_attr_init(&a);
        pthread_attr_setstacksize(&a, 65536);
        for (int i = 0; i < 20; i++) {
            if (pthread_create(&t, &a, locks, NULL))
                puts("no thread");
            else
                pthread_join(t, NULL);
        }
        void *p = malloc(20 << 20);
        printf("%d\n", p != NULL);
    } else if (!strcmp(what, "dlmopen")) {
        void *h = dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW), *c = h ? dlsym(h, "cos") : NULL, *q = h ? dlmopen(LM_ID_NEWLM, "libpthread.so.0", RTLD_NOW) : NULL;
        printf("%d %d %d\n", h != NULL, c != NULL, q != NULL);
        int (*l)(void *) = h ? dlsym(h, "pthread_mutex_lock") : NULL, (*u)(void *) = h ? dlsym(h, "pthread_mutex_unlock") : NULL;
        static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
        for (int i = 0; l && i < 100; i++)
            l(&m), u(&m);
    } else if (!strcmp(what, "deepbind")) {
        void *h = dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND | RTLD_LOCAL);
        int (*l)(void *) = dlsym(RTLD_NEXT, "pthread_mutex_lock"), (*u)(void *) = dlsym(RTLD_DEFAULT, "pthread_mutex_unlock");
        static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
        for (int i = 0; i < 100; i++)
            l(&m), u(&m);
        printf("%d %s\n", h != NULL, dlerror() ? "an error" : "no error");
        dlopen("nothing.so", RTLD_NOW);
        puts(dlerror());
        dlsym(RTLD_DEFAULT, "no_such_name");
        puts(dlerror());
    } else if (!strcmp(what, "brk")) {
        char *b = sbrk(0), *c = sbrk(1 << 20);
        printf("%d\n", b == c);
        memset(c, 1, 1 << 20);
    } else if (!strcmp(what, "malloc")) {
        struct mallinfo2 i = mallinfo2();
        printf("%zu in use, %zu arenas\n", i.uordblks, i.hblks);
    } else if (!strcmp(what, "coroutine")) {
        static char stack[16384];
        getcontext(&other);
        other.uc_stack.ss_sp = stack, other.uc_stack.ss_size = sizeof stack, other.uc_link = &home;
        makecontext(&other, turns, 0);
        for (int i = 0; i < 1000; i++)
            swapcontext(&home, &other);
    } else if (!strcmp(what, "many_maps")) {
        int n = 0;
        while (n < 70000 && mmap(NULL, 4096, n % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
            n++;
        pthread_create(&t, NULL, locks, NULL) ? puts("no thread") : pthread_join(t, NULL);
        puts(n > 60000 ? "full" : "other");
    }
    around(stdout);
    lock(5);
    return 3;
}
