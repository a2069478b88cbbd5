// A library with a scope or a namespace of its own calls libc's locks past every preloaded name. argv[1]: the library; argv[2]: how it is opened.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
int main(int argc, char **argv) {
    void *library = NULL;
    if (!strcmp(argv[2], "plain")) library = dlopen(argv[1], RTLD_NOW);
    if (!strcmp(argv[2], "deepbind")) library = dlopen(argv[1], RTLD_NOW | RTLD_DEEPBIND);
    if (!strcmp(argv[2], "dlmopen")) library = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
    if (!library) return puts(dlerror()), 1;
    int (*locks)(void) = (int (*)(void))dlsym(library, "locks");
    pthread_mutex_lock(&m);
    pthread_mutex_unlock(&m);
    printf("locked %d\n", locks());
    return 0;
}
